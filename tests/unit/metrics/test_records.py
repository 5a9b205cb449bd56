"""What a record says, and that no rank can do harm with one."""

import json
import random

import pytest

from fermi.metrics.records import FoundCheckpoint, Media, Record, is_output_path, parse_record


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('{"source":"wandb","step":10,"values":{"train/loss":2.5},"time":5.5}',
         Record("wandb", 10, 5.5, values={"train/loss": 2.5})),
        ('{"source":"wandb","values":{"a":NaN,"b":-Infinity,"c":true,"d":"1","e":null}}',
         Record("wandb", values={"a": None, "b": None, "e": None})),
        ('{"source":"wandb","step":-1,"time":"x","rank":3,"values":{"a":1}}', Record("wandb", rank=3, values={"a": 1})),
        ('{"source":"mlflow","parameters":{"lr":0.1,"opt":{"name":"adamw","betas":[0.9,0.95]},"amp":true,"x":null}}',
         Record("mlflow", parameters={"lr": 0.1, "opt.name": "adamw", "opt.betas": "[0.9, 0.95]", "amp": True})),
        ('{"source":"tensorboard","step":1,"media":{"kind":"image","name":"a","path":"media/7.png"}}',
         Record("tensorboard", 1, media=Media("image", "a", "media/7.png"))),
        ('{"source":"runner","checkpoint":{"path":"/x/checkpoint-5","step":5,"size_bytes":7,"layout":"hf"}}',
         Record("runner", checkpoint=FoundCheckpoint("/x/checkpoint-5", 5, 7, "hf"))),
        ('{"source":"runner","prompt":{"text":"a\\u0000b","kind":"input"},"more":1}',
         Record("runner", prompt={"text": "a\N{REPLACEMENT CHARACTER}b", "kind": "input"})),
    ],
)  # fmt: skip
def test_each_part_of_a_record_is_read(text: str, record: Record) -> None:
    assert parse_record(text.encode()) == record


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"source":"json","values":{"a":1}}', '{"source":"text"}', '{"source":"A b"}', '{"values":{"a":1}}',
     '{"source":["wandb"]}', "[" * 3000],
)  # fmt: skip
def test_what_is_no_record_is_left_out(text: str) -> None:
    assert parse_record(text.encode()) is None


@pytest.mark.parametrize("part", ["values", "parameters", "media", "checkpoint", "prompt", "notice", "rank", "time"])
@pytest.mark.parametrize("value", [[], "x", 1e400, -5, {"": {}}, {"path": []}, {"kind": []}, {"a": {}}])
def test_a_malformed_part_is_left_out_by_itself(part: str, value: object) -> None:
    found = parse_record(json.dumps({"source": "wandb", "step": 3, part: value}).encode())
    assert found is not None
    assert found.step == 3
    assert (found.media, found.checkpoint, found.values) == (None, None, {})


def test_a_record_is_bounded() -> None:
    nested: object = 1
    for _ in range(50):
        nested = {"a": nested}
    found = parse_record(json.dumps({"source": "wandb", "values": {str(n): n for n in range(5000)},
                                     "parameters": {"n" * 900: "x" * 9000, "deep": nested}}).encode())  # fmt: skip
    assert found is not None
    assert len(found.values) == 1000
    [(name, text), (deep, rest)] = found.parameters.items()
    assert (len(name), len(text), deep) == (200, 1000, "deep.a.a.a")
    assert isinstance(rest, str)


@pytest.mark.parametrize("path", ["/etc/passwd", "a/../b", "a//b", "./a", "", "a/", "x" * 501, "a\0b"])
def test_a_path_outside_of_the_outputs_is_refused(path: str) -> None:
    assert not is_output_path(path)


def test_no_text_can_do_harm() -> None:
    seed = b'{"source":"wandb","step":10,"values":{"a":1},"parameters":{"b":{"c":[1]}},"media":{"kind":"image"}}'
    chosen = random.Random(7)
    for _ in range(3000):
        text = bytearray(seed)
        for _ in range(chosen.randint(1, 4)):
            text[chosen.randrange(len(text))] = chosen.choice(b'{}[]",:0a\\\xff')
        parse_record(bytes(text))
