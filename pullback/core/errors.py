"""The errors and warnings a user can meet, and the words they share."""

from collections.abc import Iterable
from difflib import get_close_matches


class PullbackError(ValueError):
    """A request Pullback refuses: the text says what is wrong, what was expected and what to do."""


class DescriptionError(PullbackError):
    """A robot description that cannot become a model."""


class DescriptionWarning(UserWarning):
    """A robot description that was loaded although something in it looks wrong."""


class SecondDerivativeError(PullbackError):
    """A second derivative was asked of an operator that has a first one only."""


class GradientError(PullbackError):
    """A gradient that is not finite, of the batch elements `worlds`, though nothing that was asked is."""

    def __init__(self, text: str, worlds: Iterable[int] = ()) -> None:
        super().__init__(text)
        self.worlds = list(worlds)


def refuse_unknown_options(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for an option that does not exist, listing the close ones."""
    choices = list(known)
    for name in given:
        if name not in choices:
            raise unknown_name(f"option of {function}", name, choices)


def unknown_name(kind: str, name: str, choices: Iterable[str], where: str = "") -> PullbackError:
    """Return the error for a name that does not exist, listing the close ones."""
    choices = list(choices)
    close = get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"choose from: {', '.join(choices)}"
    return PullbackError(f"no {kind} named {name!r}{' in ' + where if where else ''}; {hint}")
