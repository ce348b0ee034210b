"""The style sheets of drawings and pages. Colours follow the reader's scheme, light or dark."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = """
--hf-page:#f6f7f9;--hf-card:#fff;--hf-text:#1c2430;--hf-dim:#5d6878;--hf-line:#d9dee6;--hf-band:#f3f5f8;
--hf-model:#4763d4;--hf-tool:#128a7b;--hf-delegate:#8453c6;--hf-wait:#c69311;--hf-doubt:#b4520a;
--hf-bad:#cf2e3d;--hf-good:#1a7f37;--hf-gap:#cf2e3d;--hf-money:#7a8798;--hf-code:#f3f5f8;
--hf-process-a:#dfe6f5;--hf-process-b:#e9e2f4;--hf-on-bar:#fff;"""
_DARK: Final = """
--hf-page:#0f1319;--hf-card:#171c24;--hf-text:#e4e9f0;--hf-dim:#98a4b5;--hf-line:#2c3440;--hf-band:#1c222c;
--hf-model:#7d95f5;--hf-tool:#35b8a6;--hf-delegate:#b48af0;--hf-wait:#d8ab3a;--hf-doubt:#f0903c;
--hf-bad:#f2606c;--hf-good:#4ac26b;--hf-gap:#f2606c;--hf-money:#8e9bad;--hf-code:#1c222c;
--hf-process-a:#26324a;--hf-process-b:#33294a;--hf-on-bar:#0f1319;"""

DRAWING: Final = (
    ".hf{" + _LIGHT.replace("\n", "") + "}"
    "@media (prefers-color-scheme:dark){.hf{" + _DARK.replace("\n", "") + "}}"
    """
.hf{color:var(--hf-text);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.hf svg{display:block;font-size:12px}
.hf svg text{fill:var(--hf-text);dominant-baseline:central}
.hf svg .dim,.hf svg a .dim{fill:var(--hf-dim)}
.hf svg .mono{font-family:ui-monospace,"SF Mono",Menlo,"DejaVu Sans Mono",monospace;font-size:11.5px}
.hf svg .strong{font-weight:600}
.hf svg .halo{paint-order:stroke;stroke:var(--hf-card);stroke-width:3px;stroke-linejoin:round}
.hf svg .hf-on-bar{fill:var(--hf-on-bar)}
.hf svg a:hover text{text-decoration:underline}
.hf-grid{stroke:var(--hf-line);stroke-width:1}
.hf-band{fill:var(--hf-band)}
.hf-pale{opacity:.45}
.hf-model{fill:var(--hf-model);stroke:var(--hf-model)}
.hf-tool{fill:var(--hf-tool);stroke:var(--hf-tool)}
.hf-node{fill:var(--hf-money);stroke:var(--hf-money)}
.hf-delegate{fill:var(--hf-delegate);stroke:var(--hf-delegate)}
.hf-wait{fill:var(--hf-wait);stroke:var(--hf-wait)}
.hf-doubt{fill:var(--hf-doubt);fill-opacity:.25;stroke:var(--hf-doubt);stroke-dasharray:4 3}
.hf-is-failed{fill:var(--hf-bad);stroke:var(--hf-bad)}
.hf-is-doubt{fill:var(--hf-doubt);stroke:var(--hf-doubt)}
.hf-is-cut{fill-opacity:.25;stroke-dasharray:3 2}
.hf-is-running{fill-opacity:.55}
.hf-gap{fill:var(--hf-gap);fill-opacity:.13}
.hf-gap-edge{stroke:var(--hf-gap);stroke-width:1.5}
.hf-break{fill:var(--hf-dim);fill-opacity:.09}
.hf-break-edge{stroke:var(--hf-dim);stroke-opacity:.5;stroke-dasharray:2 3}
.hf svg .hf-gap-text{fill:var(--hf-gap)}
.hf-gap-row{fill:var(--hf-gap);fill-opacity:.1}
.hf-good{fill:var(--hf-good);stroke:var(--hf-card)}
.hf-bad{fill:var(--hf-bad);stroke:var(--hf-card)}
.hf-open{fill:var(--hf-card);stroke:var(--hf-doubt);stroke-width:2}
.hf-plain{fill:var(--hf-dim);stroke:var(--hf-card)}
.hf svg .hf-text-good{fill:var(--hf-good)}
.hf svg .hf-text-bad{fill:var(--hf-bad)}
.hf svg .hf-text-open{fill:var(--hf-doubt)}
.hf-process-a{fill:var(--hf-process-a)}
.hf-process-b{fill:var(--hf-process-b)}
.hf-checkpoint{stroke:var(--hf-dim);stroke-width:1.5}
.hf-rewind{stroke:var(--hf-delegate);stroke-width:1.5;stroke-dasharray:4 3;fill:none}
.hf-rewind-head{fill:var(--hf-delegate)}
.hf-money{fill:var(--hf-money);fill-opacity:.22;stroke:var(--hf-money);stroke-width:1.5;
 vector-effect:non-scaling-stroke}
.hf-cap{stroke:var(--hf-bad);stroke-dasharray:5 4}
.hf-region{fill:transparent}
.hf-region:hover{fill:var(--hf-model);fill-opacity:.12}
.hf-here{fill:var(--hf-model);fill-opacity:.08;stroke:var(--hf-model)}
.hf-legend{display:flex;flex-wrap:wrap;gap:2px 16px;color:var(--hf-dim);font-size:12px;margin-top:8px}
.hf-legend span{display:inline-flex;align-items:center;gap:5px}
.hf-legend svg{width:14px;height:10px}
.hf-legend .hf-gap{fill-opacity:.3;stroke:var(--hf-gap)}
.hf-status{display:inline-block;border-radius:99px;padding:0 9px;font-size:12px;line-height:20px;
 border:1px solid currentColor;vertical-align:2px}
.hf-status.good{color:var(--hf-good)}.hf-status.bad{color:var(--hf-bad)}.hf-status.open{color:var(--hf-doubt)}
.hf-status.plain{color:var(--hf-dim)}
.hf-card{background:var(--hf-card);border:1px solid var(--hf-line);border-radius:10px;padding:12px 16px}
.hf-card .hf-title{font-weight:600;overflow-wrap:anywhere}
.hf-facts{color:var(--hf-dim);font-size:12.5px;overflow-wrap:anywhere}
.hf-card>*+*{margin-top:6px}
.hf-card ul{margin:4px 0 0;padding-left:20px}
.hf-card pre{margin:6px 0 0;white-space:pre-wrap;overflow-wrap:anywhere;background:none;color:inherit}
"""
)
"""For drawings, wherever they are."""

PAGE: Final = (
    DRAWING
    + """
body.hf{margin:0;background:var(--hf-page)}
main{max-width:1360px;margin:0 auto;padding:20px clamp(10px,2.5vw,32px) 60px}
h1{font-size:22px;line-height:1.3;margin:6px 0 4px;overflow-wrap:anywhere}
h2{font-size:16px;margin:30px 0 8px}
h3{font-size:13px;margin:0}
a{color:var(--hf-model)}
section.box,details.box{background:var(--hf-card);border:1px solid var(--hf-line);border-radius:10px;
 padding:12px 14px;margin:10px 0}
section.box,details.box{overflow-x:auto}
.box>.hf-overview,.box>.hf-steps{min-width:560px}
details>summary{cursor:pointer}
.facts{display:flex;flex-wrap:wrap;gap:6px 28px;margin:12px 0 0}
.facts div{min-width:0;max-width:100%}
.facts dt{color:var(--hf-dim);font-size:12px}
.facts dd{margin:0;overflow-wrap:anywhere}
.note{color:var(--hf-dim);font-size:13px;margin:6px 0}
section.needs ul{margin:4px 0 0;padding-left:20px}
.needs li+li{margin-top:8px}
.needs .command{display:block;margin-top:2px}
.needs{border-left:4px solid var(--hf-doubt)}
.mono,pre,code{font-family:ui-monospace,"SF Mono",Menlo,"DejaVu Sans Mono",monospace;font-size:12.5px}
pre{background:var(--hf-code);border-radius:6px;padding:8px 10px;margin:6px 0;white-space:pre-wrap;
 overflow-wrap:anywhere;max-height:420px;overflow-y:auto}
.message{padding:8px 0 8px 12px;border-left:3px solid var(--hf-line);margin:10px 0}
.message.user{border-color:var(--hf-wait)}
.message.assistant{border-color:var(--hf-model)}
.message.tool{border-color:var(--hf-tool)}
.message:target,tr:target{background:var(--hf-band)}
.message h3{color:var(--hf-dim);font-weight:600}
.message h3 time{font-weight:400;margin-left:8px}
.said{white-space:pre-wrap;overflow-wrap:anywhere}
.call{border:1px solid var(--hf-line);border-radius:6px;padding:4px 10px;margin:6px 0}
.call summary{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.reasoning{color:var(--hf-dim)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px}
th{text-align:left;color:var(--hf-dim);font-weight:600;font-size:12px}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--hf-line);vertical-align:top}
td{overflow-wrap:anywhere}
table.effects td{width:33%;min-width:12em}
td.tight{white-space:nowrap;overflow-wrap:normal}
td ul{margin:2px 0;padding-left:16px}
.bad{color:var(--hf-bad)}.good{color:var(--hf-good)}.open{color:var(--hf-doubt)}.dim{color:var(--hf-dim)}
footer{color:var(--hf-dim);font-size:12px;margin-top:40px}
@media print{main{max-width:none}details.box{break-inside:avoid}}
"""
)
"""For whole pages."""
