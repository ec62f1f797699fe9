"""The table of annotations, on rows made up in its layout and on the real one where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prill.evaluators.agreement.annotators import annotator_agreement
from prill.io.store import BadLine
from prill.types import LabelRecord
from tests.support.datasets.annotations import load_annotations

HEADER = (
    "annotator_name,benchmark,task_id,model_name,exp_name,trajectory_success,trajectory_side_effect"
)


def test_line_becomes_label_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        f"{HEADER}\n Z "
        ",shop,shop.7,GenericAgent-m,e,Successful,No\nY,shop,shop.7,m,e,,Yes\n,shop,,m,e,Successful,No\n"
    )
    first, second, third = load_annotations(path)
    assert first == LabelRecord(
        id="shop/m/shop.7", success=True, annotator="Z", note="side_effect: No"
    )
    assert second == LabelRecord(
        id="shop/m/shop.7", success=None, annotator="Y", note="side_effect: Yes"
    )
    assert isinstance(third, BadLine)
    assert third.message.startswith(f"{path}:4: ")


@pytest.mark.labelled
def test_real_agreement_of_two_people(real: Callable[[str], Path]) -> None:
    labels = [
        item
        for item in load_annotations(real("annotations") / "arb_annotations.csv")
        if isinstance(item, LabelRecord)
    ]
    result = annotator_agreement(labels)
    assert result is not None
    assert (
        len(labels),
        len({label.id for label in labels}),
        result.trajectories,
        result.pairs,
    ) == (954, 882, 72, 72)
    assert (round(result.raw, 3), result.kappa) == (0.847, pytest.approx(0.67, abs=5e-3))
