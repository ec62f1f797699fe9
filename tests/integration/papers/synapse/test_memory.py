"""The memory: what is found, what is kept in files, and what never goes together."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prill.errors import UsageError
from prill.models.ledger import Budget, spending_from
from prill.models.local.weights import folder_hash
from prill.papers.embedders import EndpointEmbedder, TfidfEmbedder, make_embedder
from prill.papers.synapse.memory import Exemplar, ExemplarMemory, ExemplarTurn
from prill.papers.synapse.sandbox import first_block
from prill.protocols import Message
from tests.support.models.embedding_server import EmbeddingServer
from tests.support.programmatic.synapse import ExemplarFollower


def saved(rows: list[Any]) -> bytes:
    data = io.BytesIO()
    np.save(data, np.array(rows))
    return data.getvalue()


def exemplar(name: str, key: str, *actions: str) -> Exemplar:
    return Exemplar(name, key, key, tuple(ExemplarTurn(action, state="<p>") for action in actions))


class Fixed:
    """Gives each text the vector that stands in it."""

    def __init__(self, name: str = "fixed") -> None:
        self.name = name

    async def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        return np.array([[float(word) for word in text.split()] for text in texts], np.float32)


async def test_three_nearest_keys_vote() -> None:
    keys = {"a": "0 0", "b": "1 0", "c": "0 1", "far": "9 9"}
    memory = ExemplarMemory(
        [exemplar(name[0], key, "pass") for name, key in keys.items()], embedder=Fixed()
    )
    assert [(round(d, 3), e.name) for d, e in await memory.nearest("0 0")] == [
        (0.0, "a"),
        (1.0, "b"),
        (1.0, "c"),
    ]
    assert await memory.vote("0 0") == "a", "three names: the nearest wins"
    twice = ExemplarMemory([*memory.exemplars, exemplar("b", "0.5 0", "pass")], embedder=Fixed())
    assert await twice.vote("0 0") == "b"
    assert await ExemplarMemory([], embedder=TfidfEmbedder()).vote("0 0") is None


async def test_a_saved_memory_is_the_same(tmp_path: Path) -> None:
    memory = ExemplarMemory(
        [exemplar("a", "0 0", "pass"), exemplar("b", "1 2", "pass", "pass")], embedder=Fixed()
    )
    await memory.save(tmp_path)
    again = ExemplarMemory.load(tmp_path, Fixed())
    assert (again.exemplars, again.hash) == (memory.exemplars, memory.hash)
    assert np.array_equal(await again.vectors(), np.array([[0, 0], [1, 2]], np.float32))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "abstractions.json",
        "exemplars.jsonl",
        "memory.json",
        "vectors.npy",
    ]


async def test_embedders_are_never_mixed(tmp_path: Path) -> None:
    await ExemplarMemory([exemplar("a", "0 0", "pass")], embedder=Fixed()).save(tmp_path)
    with pytest.raises(UsageError, match="its vectors were made with fixed, not with other"):
        ExemplarMemory.load(tmp_path, Fixed("other"))
    with pytest.raises(UsageError, match="not with tfidf"):
        ExemplarMemory.load(tmp_path, TfidfEmbedder())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("exemplars.jsonl", b'{"name": "a"}\n{"name": 3}\n', "exemplars.jsonl, line 2: .*name"),
        ("abstractions.json", b"[]", "abstractions.json: "),
        ("memory.json", b"{}", "memory.json: .*embedder"),
        ("vectors.npy", b"\x93NUMPY broken", "vectors.npy: the vectors cannot be read"),
        (
            "vectors.npy",
            saved([[0, math.nan]]),
            "vectors.npy: the vectors contain a value that is not a number",
        ),
        (
            "vectors.npy",
            saved([["a", "b"]]),
            "vectors.npy: the vectors contain a value that is not a number",
        ),
        ("vectors.npy", saved([0, 0]), "vectors.npy: 2 vectors, but 1 exemplars"),
    ],
)
async def test_a_broken_file_is_named(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    await ExemplarMemory([exemplar("a", "0 0", "pass")], embedder=Fixed()).save(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        ExemplarMemory.load(tmp_path, Fixed())


async def test_an_endpoint_embeds_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with EmbeddingServer() as server:
        embedder = EndpointEmbedder("mock-embedding", base_url=server.base_url)
        rows = await embedder.embed([f"word{i}" for i in range(40)])
        again = await embedder.embed(["word39", "word0"])
        assert server.stats().requests == 3
    assert rows.shape == (40, 64)
    assert np.array_equal(again, rows[[39, 0]])


async def test_embeddings_spend_the_budget() -> None:
    with EmbeddingServer() as server:
        with spending_from(Budget(1.0)) as budget:
            embedder = EndpointEmbedder("text-embedding-3-small", base_url=server.base_url)
            with pytest.raises(UsageError, match="a budget needs a price for mock-embedding"):
                EndpointEmbedder("mock-embedding", base_url=server.base_url)
        await embedder.embed(["word " * 100])
    assert budget.spent_usd == pytest.approx(0.02e-6 * 125, rel=0.02)


async def test_an_encoder_reads_the_same_in_batches(tiny_model: Callable[[str], Path]) -> None:
    """By mean over a text's own tokens: what pads it in a batch does not count."""
    folder = tiny_model("qwen2")
    embedder = make_embedder(f"local:{folder}")
    together = await embedder.embed(
        ["click the button", "a much longer text about a page with many words " * 9]
    )
    assert together.shape[0] == 2
    assert np.allclose(together[0], (await embedder.embed(["click the button"]))[0], atol=1e-4)
    assert embedder.name == f"local:{folder.name} {folder_hash(folder)}"
    with pytest.raises(UsageError, match="not a sentence encoder"):
        await make_embedder("local:no/such").embed(["a"])


def test_the_papers_own_files_are_read(tmp_path: Path) -> None:
    """In the layout of the authors' two files, with contents of ours."""
    single = {
        "demo": [{"obs": "o", "act": "agent.press('enter')"}],
        "filter_prompt": "shorten",
        "code_filter_prompt": "code",
    }
    multi = {
        "demo": [{"task": "t", "trajectory": [{"state": "s", "obs": "o", "act": "pass"}] * 2}],
        "filter_prompt": ["", "x"],
    }
    (tmp_path / "exemplars.json").write_text(json.dumps({"one": single, "two": multi}))
    (tmp_path / "specifiers.json").write_text(
        json.dumps({"one": ["Task: a"] * 5, "two": ["Task: b"] * 5})
    )
    memory = ExemplarMemory.load(tmp_path, TfidfEmbedder())
    one, two = memory.entry("one"), memory.entry("two")
    assert one is not None and two is not None
    assert sum(1 for e in memory.exemplars if e.key) == 10
    assert (one.has_turns, one.abstracts, one.abstraction.code) == (False, True, ("code",))
    assert (two.has_turns, len(two.exemplars[0].steps), two.abstraction.instructions) == (
        True,
        2,
        ("", "x"),
    )
    (tmp_path / "exemplars.json").write_text("[]")
    with pytest.raises(UsageError, match="not the paper's"):
        ExemplarMemory.load(tmp_path, TfidfEmbedder())


async def test_code_gives_the_words_on_record() -> None:
    """The example code of each prompt, run on the pages of the exemplars: its words are theirs."""
    shipped = ExemplarMemory.load(None, TfidfEmbedder())
    for name, way in shipped.abstractions.items():
        entry = shipped.entry(name)
        assert entry is not None, name
        for turn, prompt in enumerate(way.code):
            for one in entry.exemplars:
                if turn < len(one.steps):
                    written = prompt.replace("<task>", one.task).replace("<state>", "")
                    reply = await ExemplarFollower().complete([Message("user", (written,))])
                    names = {"state": one.steps[turn].state or "", "task": one.task}
                    exec(first_block(reply.text), names)  # ours, so it needs no sandbox
                    assert names["obs"] == one.steps[turn].observation, (name, turn, one.source)
