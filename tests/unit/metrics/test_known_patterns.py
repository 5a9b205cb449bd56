"""Lines that a project declares as points: what they give, and what is wrong with a declaration."""

import pytest

from fermi.diagnosis.rules import parse_metric_lines, parse_rules
from fermi.metrics.known_patterns import parse_declared_patterns
from fermi.metrics.text_patterns import Learner

LINE = '[[metric]]\nline = "iter {step}: loss {train_loss}, time {ms}ms"\n'


def test_the_first_line_is_a_point() -> None:
    learner = Learner(known=parse_declared_patterns(LINE))
    (point,) = learner.feed(b"2024-01-01 INFO iter 10: loss 2.5, time 12.5ms\nother\n")
    assert (point.step, point.values) == (10, {"train_loss": 2.5, "ms": 12.5})
    assert [one.template for one in learner.found] == ["iter {step}: loss {train_loss}, time {ms}ms"]


def test_an_epoch_and_its_batches_make_one_step() -> None:
    text = '[[metric]]\nline = "round {epoch}.{batch}/{total}: score {score}"\n'
    learner = Learner(known=parse_declared_patterns(text))
    points = learner.feed(b"round 1.5/10: score 0.5\nround 2.5/10: score 0.6\n")
    assert [(one.step, one.values) for one in points] == [(5, {"score": 0.5}), (15, {"score": 0.6})]


def test_rules_and_metrics_stand_in_one_file() -> None:
    text = LINE + '[OURS]\nlines = ["quota exceeded"]\nmessage = "No quota"\n'
    rules, problems = parse_rules(text)
    assert ([rule.code for rule in rules], problems) == (["OURS"], [])


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ('[[metric]]\nline = "loss {loss}"\n', "RULE_VALUE", 1),
        ('[[metric]]\nline = "step {step}"\n', "RULE_VALUE", 1),
        (LINE + '\n[[metric]]\nlines = ["step {step}: {loss}"]\n', "RULE_VALUE", 4),
        (LINE + '[[metric]]\nline = "{step} loss {loss}"\n', "RULE_BEGINS_WITH_A_HOLE", 3),
        ('[[metric]]\nline = "step {step}{loss}"\n', "RULE_HOLES_TOUCH", 1),
        ('[[metric]]\nline = "step {step}: {loss}"\nname = "x"\n', "RULE_KEY", 1),
        ("metric = 5\n", "RULE_VALUE", 1),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(text: str, code: str, line: int) -> None:
    _, problems = parse_rules(text)
    assert [(problem.code, problem.line) for problem in problems] == [(code, line)]
    assert len(parse_metric_lines(text)) == text.count(LINE)
