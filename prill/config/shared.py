"""Options that several runs and parts share, each described once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

LimitOption = Annotated[int | None, Meta(ge=1, description="Use only the first N trajectories.")]
ResumeOption = Annotated[
    bool,
    Meta(
        description="Continue where an earlier run stopped. Otherwise what it wrote is renamed to "
        "NAME.bak and the run starts again."
    ),
]
RetryUnscoredOption = Annotated[
    bool, Meta(description="Try again what failed before, in addition to what is missing.")
]
RunFolderOption = Annotated[
    str | Path, Meta(description="Output folder. An interrupted run resumes there.")
]
# Inputs.
TRAJECTORIES = Meta(description="Trajectory files (.jsonl, .jsonl.gz), or folders of them.")
LABELS = Meta(description="Label file.")
LabelsOption = Annotated[str | Path, LABELS]
LabelFiles = Annotated[Sequence[str | Path], Meta(description="Label files.")]
OneJudgeOption = Annotated[
    Sequence[str | Path],
    Meta(min_length=1, description="Verdict files of one judge, such as those of its shards."),
]
VerdictFiles = Annotated[Sequence[str | Path], Meta(min_length=1, description="Verdict files.")]
JUDGED = Meta(
    description="Trajectories that were judged, as for `prill score`. They show which runs share "
    "a task, which intervals and folds then never divide."
)
CalibrationOption = Annotated[
    str | Path | None,
    Meta(description="File of `prill calibrate` that sets probabilities and the threshold."),
]
EvidenceOnlyOption = Annotated[
    bool, Meta(description="Hide the agent's thoughts, answer and messages from the judge.")
]
# Outputs.
JSON_FILE = Meta(description="File to write (JSON).")
PlotOption = Annotated[str | Path | None, Meta(description="Chart to write (SVG).")]
OutOfFoldOption = Annotated[
    str | Path | None,
    Meta(
        description="Verdict file for out-of-fold verdicts, by judges that were not fitted on the "
        "run's task. For `prill calibrate` and `prill fit`."
    ),
]
ByOption = Annotated[
    Sequence[str],
    Meta(
        description="Also a result per group: site, agent, platform, task, or a key of the "
        "trajectories' metadata."
    ),
]
GpusOption = Annotated[
    str | None,
    Meta(
        description="For a dry run: estimate for these GPUs, for example 8xH200, instead of this "
        "machine's."
    ),
]
ThreadsOption = Annotated[
    int | None, Meta(ge=1, description="Maximum number of CPU cores at a time (default: all).")
]
DeviceOption = Annotated[
    str | None, Meta(description="Device: cuda, cpu, mps, … (default: cuda if available).")
]
