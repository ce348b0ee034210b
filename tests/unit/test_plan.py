"""Plans: a step is done only with evidence."""

import msgspec
import pytest

from holdfast.errors import BadInput, NotFound
from holdfast.records import Plan, PlanStep

PLAN = Plan(
    goal="ship it",
    steps=(
        PlanStep(id="build", what="build the wheel", postcondition="dist/ holds one"),
        PlanStep(id="upload", what="upload the wheel"),
    ),
)


@pytest.mark.parametrize("evidence", ["", "   ", "\n"])
def test_a_step_is_done_only_with_evidence(evidence: str) -> None:
    """Neither a new step nor an update can claim otherwise."""
    with pytest.raises(BadInput, match="'build' is marked done without evidence"):
        PlanStep(id="build", what="build", status="done", evidence=evidence)
    with pytest.raises(BadInput, match="without evidence"):
        PLAN.update("build", status="done", evidence=evidence)


def test_an_update_changes_one_step_of_a_new_plan() -> None:
    """The old plan stays as it was."""
    after = PLAN.update("build", status="done", evidence="ls dist")
    assert after.step("build").status == "done"
    assert after.step("build").evidence == "ls dist"
    assert after.step("build").postcondition == "dist/ holds one"
    assert after.step("upload") == PLAN.step("upload")
    assert [step.id for step in after.steps] == ["build", "upload"]
    assert PLAN.step("build").status == "todo"


def test_evidence_stays_until_there_is_new() -> None:
    """Dropping a step does not forget what was shown."""
    done = PLAN.update("build", status="done", evidence="ls dist")
    assert done.update("build", status="dropped").step("build").evidence == "ls dist"
    assert done.update("build", status="done", evidence="sha256").step("build").evidence == "sha256"


def test_an_unknown_step_is_not_found_and_the_error_lists_those_there_are() -> None:
    """For a model that misremembers an id."""
    with pytest.raises(NotFound, match=r"no step 'test'.*'build', 'upload'"):
        PLAN.step("test")
    with pytest.raises(NotFound):
        PLAN.update("test", status="doing")


def test_steps_need_ids_of_their_own() -> None:
    """Two steps of one name could not be told apart."""
    with pytest.raises(BadInput, match="different ids"):
        Plan(steps=(PlanStep(id="a", what="x"), PlanStep(id="a", what="y")))


def test_a_plan_survives_being_written_down() -> None:
    """Evidence is restored with the step; a stored plan that claims too much does not load."""
    plan = PLAN.update("build", status="done", evidence="ls dist")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    with pytest.raises(msgspec.ValidationError, match="without evidence"):
        msgspec.json.decode(b'{"steps":[{"id":"a","what":"x","status":"done"}]}', type=Plan)
