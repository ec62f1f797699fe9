"""Creates every configuration of prill in Python. Nothing runs: each line only makes a value.

Run: python examples/configurations.py
The comments name the functions of `prill` that take them.
"""

from pathlib import Path

import prill
import prill.papers
import prill.papers.bench
from prill.refine import ExportSpec, FilterSpec, StudyArm
from prill.refine.rewards import RewardSpec
from prill.refine.rewards.service import ServiceSpec

# components: each accepts its name or a table as well
model = prill.ModelConfig("gpt-4o", base_url="http://localhost:8000/v1", temperature=0.0)
captioner = prill.CaptionerConfig("vlm", model=model, max_tokens=512)
judge = prill.JudgeConfig("modular", captioner=captioner, model=model)
policy = prill.PolicyConfig("react", reasoning=False)
teacher = prill.TeacherConfig("react", history=2)
recording = prill.FormatConfig("mind2web", scores="scores.pkl")
preset = prill.PresetConfig("small-text", rank=8, learning_rate=2e-4)
reward = prill.RewardConfig(judge=judge, spec=RewardSpec(kind="score", length_penalty=0.01))
retries = prill.RetrySpec(attempts=3, keep_best=True)
lessons = prill.LessonsConfig(model=model, lesson_tokens=200)
quarter = prill.Shard(1, 4)

# environments, with their tasks
places: list[prill.EnvironmentConfig] = [
    prill.MiniWobConfig(tasks=["click-link", "enter-text"]),
    prill.WebArenaConfig(shop=True, tasks=[1001, 1002], viewport=(1280, 720)),
    prill.WebArenaInfinityConfig(root=Path("webarena-infinity"), apps="gmail", tasks="task_e*"),
    prill.papers.AirlineConfig(tasks="all"),
    prill.WebConfig(goal="Find the price of green tea", start_url="https://example.org"),
    prill.BrowserGymConfig(tasks=["miniwob.click-test"], pause=1.0),
    prill.papers.Mind2WebConfig(recordings=["cross-task=turns.jsonl"]),
    prill.AndroidConfig(goal=["Turn Wi-Fi on", "Set an alarm for six"], device="emulator-5554"),
    prill.IosConfig(goal="Write a reminder", simulator="iPhone 14"),
    prill.OwnEnvironmentConfig(name="counter.py:Counter", goal="Count to 3", options={"start": 1}),
]
episodes = prill.EpisodesConfig(environment=places[0], model=model, seeds="0-4")

# judging: score, serve, batch, caption, judges, show
runs: list[object] = [
    prill.ScoreConfig(
        trajectories=["t.jsonl"], output="v.jsonl", judge=judge, shard=quarter, budget_usd=5
    ),
    prill.ServeConfig(reward=reward, spec=ServiceSpec(port=8700, token_env="PRILL_TOKEN")),
    prill.ScoreConfig(
        trajectories=["t.jsonl"],
        output="once.jsonl",
        judge=prill.JudgeConfig("webjudge", top_k=20, model=model),
    ),
    prill.BatchConfig(folder="batch", trajectories=["t.jsonl"], judge=judge, model=model),
    prill.CaptionConfig(
        trajectories=["t.jsonl"], output=Path("captions.jsonl"), captioner=captioner, last=2
    ),
    prill.JudgesConfig(judge="vlm"),
    prill.ShowConfig(id="tea-1", verdicts=["v.jsonl"], trajectories=["t.jsonl"]),
    # evaluating judges: agree, rate, compare, calibrate, fit,
    # redteam, report, view
    prill.AgreeConfig(verdicts=["v.jsonl"], labels="l.jsonl", trajectories="t.jsonl", by=["site"]),
    prill.RateConfig(verdicts=["v.jsonl"], labels="l.jsonl", trajectories="t.jsonl", width=0.1),
    prill.CompareConfig(a="old.jsonl", b="new.jsonl", require="B >= A - 0.02", junit="c.xml"),
    prill.CalibrateConfig(
        verdicts=["v.jsonl"], labels="l.jsonl", output="c.json", target_precision=0.9
    ),
    prill.FitConfig(
        trajectories=["t.jsonl"], labels="l.jsonl", output="student.json", kind="student", seed=3
    ),
    prill.RedteamConfig(
        trajectories=["t.jsonl"], labels="l.jsonl", output="red", judge=judge, max_shift=2
    ),
    prill.ReportConfig(
        trajectories=["t.jsonl"], output="report.html", verdicts=["v.jsonl"], labels=["l.jsonl"]
    ),
    prill.ViewConfig(
        trajectories=["t.jsonl"],
        verdicts=["v.jsonl"],
        annotator="ada",
        output="l.jsonl",
        blind=True,
        order="random",
        judge=prill.JudgeConfig("ask", question="How many pages?", answer="number"),
    ),
    # improving agents: reflexion, filter, filtered_bc, train
    prill.ReflexionConfig(
        policy=policy, spec=episodes, judge=judge, retries=retries, lessons=lessons, output="tries"
    ),
    prill.FilterConfig(
        trajectories=["t.jsonl"],
        verdicts=["v.jsonl"],
        output="rows",
        filter=FilterSpec(threshold=0.7),
        export=ExportSpec(rows=("sft", "kto")),
        policy=teacher,
    ),
    prill.FilteredBCConfig(
        policy=prill.PolicyConfig("small-text", model="embedded", explore=1.0),
        episodes={"environment": "miniwob", "tasks": ["click-link"]},
        attempts={"seeds": "0-3"},
        evaluation={"seeds": "10-13"},
        arms=[
            StudyArm(name="self-training"),
            StudyArm(name="filtered", judge=prill.JudgeConfig("self-report")),
        ],
        output="study",
    ),
    prill.TrainPolicyConfig(rows="rows/sft.jsonl", output="adapter", preset=preset),
    prill.TrainJudgeConfig(
        rows="t.jsonl",
        output="judge",
        teacher_verdicts="v.jsonl",
        labels="labels.jsonl",
        judge=prill.JudgeConfig("vlm", frames=2),
        out_of_fold="held-out.jsonl",
        folds=5,
    ),
    prill.TrainCaptionerConfig(
        rows="captions/rows.jsonl", output="captioner", preset={"learning_rate": 2e-5}
    ),
    prill.papers.TrainRankerConfig(
        rows="gold.jsonl", output="ranker", preset=prill.PresetConfig("deberta-ranker", negatives=9)
    ),
    prill.papers.TrainPlannerConfig(
        rows="gold.jsonl", output="planner", policy=prill.TeacherConfig("self-map", group=4)
    ),
    # running agents: rollout, bench, devices
    prill.RolloutConfig(
        policy=policy, spec=episodes.copy_with(seeds=range(5), workers=2), output="runs/one"
    ),
    prill.papers.bench.BenchConfig(
        policy=policy, spec=episodes, trials=2, baselines=["step"], output="runs/bench"
    ),
    prill.DevicesConfig(platforms=["web"], environment=prill.WebArenaConfig(reset="./reset.sh")),
    # files: convert, check, write_table
    prill.ConvertConfig(format=recording, source="mind2web", output="recorded"),
    prill.CheckConfig(files=["t.jsonl", Path("runs")], images=True),
    prill.TableConfig(verdicts=["v.jsonl"], labels="l.jsonl", format="csv", output="table.csv"),
    prill.TableConfig(
        verdicts=["a.jsonl", "b.jsonl"],
        format="inspect",
        recording="run.eval",
        output="judged.eval",
    ),
    # papers: rank, exemplars, conversations
    prill.papers.RankConfig(
        trajectories="gold.jsonl", output="scores.json", ranker="bm25", ranked="ranked.jsonl"
    ),
    prill.papers.ExemplarsConfig(
        trajectories=["t.jsonl"], verdicts=["v.jsonl"], output="memory", threshold=0.5
    ),
    prill.papers.ConversationsConfig(source="mind2web", output="conversations.json", model=model),
]
print(len(runs), "configurations")
