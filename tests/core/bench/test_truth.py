"""Each figure is what the server's own sends make it, whatever the dialect and whatever goes wrong."""

import pytest

from tests.support.truth import SHORT, compare, run

DURATION_S = 2.5


@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)
def test_each_figure_is_the_truth(case, tmp_path):
    measured = run(case, tmp_path, duration_s=DURATION_S)
    wrong = [str(each) for each in compare(measured) if not each.holds]
    assert not wrong, measured.meta["client"]
    for row, reply in zip(measured.rows, measured.replies, strict=True):
        if not row["err"] and row["toks"] is not None:
            assert [row["k1"], *row["toks"]] == reply["chunks"]
        assert (row["toks"] is None) == ("usage last" in case.dialect)
