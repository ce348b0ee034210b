"""From a URL to a store: a typo is an error with a hint, never a silent fallback."""

from pathlib import Path

import apsw
import pytest

from holdfast import HoldfastError, open_store
from holdfast.drivers.contract import Driver
from holdfast.drivers.memory import MemoryDriver
from holdfast.drivers.url import find_driver
from holdfast.errors import BadInput, BadUrl, Closed, NotFound, StoreFailed


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "names no scheme"),
        ("agents.db", "did you mean 'sqlite:agents.db' or 'dir:agents.db'"),
        ("sqlit:agents.db", "did you mean 'sqlite:agents.db'"),
        ("sqlite3:agents.db", "did you mean 'sqlite:agents.db'"),
        ("SQLite:agents.db", "did you mean 'sqlite:agents.db'"),
        ("directory:agents", "did you mean 'dir:agents'"),
        ("memroy:", "did you mean 'memory:'"),
        ("redis://localhost", "known are memory:, dir:PATH, sqlite:PATH and postgresql://"),
        (":agents", "unknown scheme ''"),
        ("memory:agents.db", "memory: takes no path; for a file write 'sqlite:agents.db'"),
        ("sqlite:", "has no path; write for example 'sqlite:agents.db'"),
        ("sqlite:   ", "has no path"),
        ("dir:", "has no path; write for example 'dir:agents'"),
        ("sqlite:///agents.db", "'sqlite:agents.db' is relative, 'sqlite:/agents.db' is absolute"),
        ("sqlite://agents.db", "'sqlite:agents.db' is relative"),
        ("dir:///var/agents", "'dir:var/agents' is relative, 'dir:/var/agents' is absolute"),
        ("sqlite::memory:", "'memory:'"),
        ("sqlite:a\0b", "NUL"),
        ("dir:a\0b", "NUL"),
        ("sqlite:x.db?cash=1", "sqlite: takes no parameters; options are those of open_store(…)"),
        ("sqlite:x.db?", "takes no parameters"),
        ("sqlite:x.db?lease=5", "did you mean open_store(…, lease_s=…)"),
        ("sqlite:x.db?shema=a&blob=dir:x", "did you mean open_store(…, schema=…, blobs=…)"),
        ("dir:agents?x=1", "dir: takes no parameters"),
        ("memory:?x=1", "memory: takes no parameters"),
    ],
)
def test_a_bad_url_is_refused_with_a_hint(url: str, hint: str) -> None:
    """Before anything is opened or made."""
    with pytest.raises(BadUrl) as caught:
        open_store(url)
    assert hint in str(caught.value)


def test_without_a_url_the_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And if it says nothing either, the error says how to name a store."""
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:{tmp_path}/env.db")
    find_driver(None, create=True)().close()
    assert (tmp_path / "env.db").exists()
    for unset in ("", None):
        monkeypatch.delenv("HOLDFAST_STORE", raising=False)
        if unset is not None:
            monkeypatch.setenv("HOLDFAST_STORE", unset)
        with pytest.raises(BadUrl, match=r"sqlite:agents\.db.*HOLDFAST_STORE"):
            open_store()


def test_relative_and_absolute_paths_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`sqlite:rel.db` is in the current directory, `sqlite:/abs.db` is not."""
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:rel.db", f"sqlite:{tmp_path}/abs.db", "dir:rel", f"dir:{tmp_path}/abs"):
        find_driver(url, create=True)().close()
    for made in ("rel.db", "abs.db", "rel", "abs"):
        assert (tmp_path / made).exists()


def test_a_path_is_a_sqlite_file(tmp_path: Path) -> None:
    """No URL is needed for the usual case."""
    find_driver(tmp_path / "agents.db", create=True)().close()
    assert (tmp_path / "agents.db").read_bytes().startswith(b"SQLite format 3")


def test_a_file_with_a_question_mark_in_its_name_is_given_as_a_path(tmp_path: Path) -> None:
    """In a URL, parameters begin there; they are not shown, as one may be a password."""
    find_driver(tmp_path / "what?.db", create=True)().close()
    assert (tmp_path / "what?.db").exists()
    with pytest.raises(BadUrl) as caught:
        open_store(f"sqlite:{tmp_path}/what.db?key=hunter2&hunter3")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("shema=x", "an unknown parameter: did you mean 'schema'?"),
        ("conections=5", "an unknown parameter: did you mean 'connections'?"),
        ("sslmod=require", "an unknown parameter: did you mean 'sslmode'?"),
        ("shema=x&conections=5", "did you mean 'schema' and 'connections'?"),
        ("hunter2=x", "an unknown parameter. Write"),
    ],
)
def test_a_misspelt_parameter_for_postgresql_is_refused(query: str, hint: str) -> None:
    """Before a server is asked: those of holdfast, and those of libpq, which are passed on."""
    with pytest.raises(BadUrl) as caught:
        find_driver(f"postgresql://localhost/x?{query}", create=False)()
    assert hint in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_driver_object_is_taken_as_it_is() -> None:
    """People bring their own."""
    driver = MemoryDriver()
    assert find_driver(driver, create=False)() is driver


def test_what_is_no_driver_is_refused() -> None:
    """At once, and not where it would be used."""
    with pytest.raises(BadUrl, match="of type int is no store"):
        open_store(5)  # type: ignore[arg-type]


def test_a_directory_is_no_sqlite_file(tmp_path: Path) -> None:
    """The error names what was probably meant."""
    with pytest.raises(BadUrl, match=f"is a directory.*'dir:{tmp_path}'"):
        find_driver(f"sqlite:{tmp_path}", create=True)()


def test_a_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`~` is what a person means by it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    find_driver("sqlite:~/agents.db", create=True)().close()
    assert (tmp_path / "agents.db").exists()


@pytest.mark.parametrize("scheme", ["sqlite", "dir"])
def test_missing_directories_are_made(scheme: str, tmp_path: Path) -> None:
    """However many there are."""
    find_driver(f"{scheme}:{tmp_path}/a/b/c", create=True)().close()
    assert (tmp_path / "a/b/c").exists()


@pytest.mark.parametrize("scheme", ["sqlite", "dir"])
def test_who_only_reads_never_makes_a_store(scheme: str, tmp_path: Path) -> None:
    """A typo in a path must not leave an empty store behind."""
    with pytest.raises(NotFound, match="no store"):
        find_driver(f"{scheme}:{tmp_path}/a/none", create=False)()
    assert list(tmp_path.iterdir()) == []


def write_text(path: Path) -> None:
    path.write_text("just some notes, long enough to be looked at as a database header " * 20)


def write_foreign_database(path: Path) -> None:
    with apsw.Connection(str(path)) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()


def cut_in_half(path: Path) -> None:
    find_driver(path, create=True)().close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("spoil", [write_text, write_foreign_database, cut_in_half])
def test_a_file_that_is_not_a_whole_database_of_ours_is_refused(spoil: object, tmp_path: Path) -> None:
    """One clear error of our own; the file is left as it was."""
    path = tmp_path / "file.db"
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(HoldfastError, match=r"file\.db"):
        find_driver(path, create=True)()
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """An older holdfast must not guess at what a newer one wrote."""
    path = tmp_path / "agents.db"
    find_driver(path, create=True)().close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", 999)
    db.close()
    with pytest.raises(HoldfastError, match=r"schema 999.*Upgrade"):
        find_driver(path, create=True)()


@pytest.mark.parametrize("scheme", ["sqlite", "dir"])
def test_a_place_that_cannot_be_written_is_an_error_of_ours(scheme: str, tmp_path: Path) -> None:
    """Here a file stands where a directory is needed."""
    (tmp_path / "file").write_text("x")
    with pytest.raises((StoreFailed, BadInput), match="file"):
        find_driver(f"{scheme}:{tmp_path}/file/store", create=True)()


@pytest.mark.parametrize("options", [{"lease_s": 0}, {"lease_s": -1}, {"linger_s": -0.1}])
def test_times_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    """A lease must last, and a linger cannot be negative."""
    with pytest.raises(BadInput, match="must be positive"):
        open_store("memory:", **options)  # type: ignore[arg-type]


async def test_a_store_is_used_inside_its_block(store_url: str | Driver) -> None:
    """Before and after it, the error says how."""
    store = open_store(store_url)
    with pytest.raises(Closed, match="async with"):
        await store.load("s")
    async with store:
        pass
    with pytest.raises(Closed):
        await store.load("s")
    await store.aclose()
