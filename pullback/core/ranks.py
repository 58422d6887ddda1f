"""Several processes as one: each rank simulates its share of the worlds, and what they have in common is summed.

`torchrun` starts the processes and says which is which; `start_ranks()` joins them (Gloo between CPUs, NCCL between
GPUs). Without it, or without `torchrun`, there is one rank and nothing here communicates. What a rank draws at random
is its rows of what one process would draw, so the result does not depend on the number of ranks but for rounding.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import compress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pullback.core.errors import PullbackError
from pullback.core.mailbox import Mailboxes, open_mailboxes

Tensor = torch.Tensor

TIMEOUT = 300.0
"""Seconds after which a rank that does not answer counts as lost."""
SLOW, SLOW_FOR = 1.5, 5
"""A rank is slow if it computes this many times as long as the median rank, so many times in a row."""
ANSWER = 0.3
"""Seconds that ranks have to say that they are still there, once contact is lost."""


class RankError(PullbackError):
    """Contact with another rank is lost; of the ranks that are left, the first one `speaks` for all."""

    speaks = True


class Ranks:
    """The processes that run together, as one of them sees them: this is `rank` of `count`."""

    def __init__(self, rank: int = 0, count: int = 1, store: Store | None = None) -> None:
        self.rank, self.count = rank, count
        self._store = store
        self._mailboxes: Mailboxes | None = None
        self.waited = 0.0
        """Seconds spent in communication so far."""
        self.begun = self._since = time.perf_counter()
        self._waited_before = 0.0
        self._slow: tuple[int, int] = (-1, 0)
        self._named: set[int] = set()
        self.has_lost = False
        """Whether contact with another rank was lost."""

    @property
    def many(self) -> bool:
        """Whether there are other ranks."""
        return self.count > 1

    @property
    def is_first(self) -> bool:
        """Whether this rank prints and writes files."""
        return self.rank == 0

    def find_mailboxes(self, timeout: float) -> None:
        """Let ranks of one machine talk through its memory."""
        self._mailboxes = open_mailboxes(self.rank, self.count, self.gather, timeout)

    # -- shares ------------------------------------------------------------------------------------------------------

    def own(self, total: int) -> slice:
        """Return which of `total` rows are this rank's: a range, as long as those of others or one row longer."""
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def share(self, total: int, what: str) -> int:
        """Return how many of `total` each rank has; a number that cannot be shared evenly is an error."""
        if total % self.count:
            raise PullbackError(f"{total} {what} cannot be shared evenly by {self.count} ranks; give a multiple of it")
        return total // self.count

    def draw(self, kind: Callable[..., Tensor], shape: Sequence[int], **options: Any) -> Tensor:
        """Return this rank's rows of random numbers `kind(rows of all ranks, ...)`, the same as one process draws."""
        if not self.many:
            return kind(tuple(shape), **options)
        return kind((shape[0] * self.count, *shape[1:]), **options)[self.own(shape[0] * self.count)]

    def own_samples(self, order: Tensor, worlds: int) -> Tensor:
        """Return which of this rank's samples (time, world) are among those of all ranks that `order` lists, in order.

        Samples are numbered time · worlds + world, in `order` with the worlds of all ranks, in the result with the
        `worlds` of this one.
        """
        if not self.many:
            return order
        everywhere = worlds * self.count
        world = order % everywhere - worlds * self.rank
        mine = (world >= 0) & (world < worlds)
        return (order // everywhere * worlds + world)[mine]

    # -- sums and messages -------------------------------------------------------------------------------------------

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over ranks, in x itself."""
        if not self.many:
            return x
        with self._talking():
            boxes = self._mailboxes
            if boxes is not None and x.is_contiguous() and boxes.takes([(0, x)]):
                boxes.sum(x)
            else:
                dist.all_reduce(x)
        return x

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean over ranks, in x itself."""
        return self.sum(x).div_(self.count) if self.many else x

    def gather_rows(self, x: Tensor, total: int) -> Tensor:
        """Return rows (total, ...) of all ranks, each of which has x, its `own(total)`; the same bits everywhere."""
        if not self.many:
            return x
        # zeros elsewhere, summed: exact, and ranks may have different numbers of rows
        plain = x.detach().to(torch.uint8) if x.dtype == torch.bool else x.detach()
        rows = torch.zeros(total, *x.shape[1:], dtype=plain.dtype, device=x.device)
        rows[self.own(total)] = plain
        return self.sum(rows).to(x.dtype)

    def swap(self, send: Sequence[tuple[int, Tensor]], receive: Sequence[tuple[int, Tensor]]) -> None:
        """Send tensors to ranks and receive into contiguous ones, all at once; at most two to each rank."""
        boxes = self._mailboxes
        with self._talking():
            # message by message: its two ends see the same size, but not what other ranks exchange
            small = [[boxes is not None and boxes.takes([one]) for one in some] for some in (send, receive)]
            messages = [dist.P2POp(dist.irecv, x, r) for (r, x), is_small in zip(receive, small[1]) if not is_small]
            messages += [dist.P2POp(dist.isend, x, r) for (r, x), is_small in zip(send, small[0]) if not is_small]
            requests = dist.batch_isend_irecv(messages) if messages else []
            if boxes is not None:
                boxes.swap(list(compress(send, small[0])), list(compress(receive, small[1])))
            for request in requests:
                request.wait()

    def gather(self, value: Any) -> list[Any]:
        """Return what each rank gives, any plain object, in the order of ranks."""
        found: list[Any] = [None] * self.count
        if not self.many:
            return [value]
        with self._talking():
            dist.all_gather_object(found, value)
        return found

    def from_first(self, value: Any) -> Any:
        """Return what rank 0 gives."""
        if not self.many:
            return value
        box = [value]
        with self._talking():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def share_gradients(self, parameters: Sequence[Tensor], loss: Tensor, weight: Any = 1.0) -> Tensor:
        """Make gradients those of the mean loss of all ranks' samples, by one sum of a flat tensor; return that loss.

        The loss is a mean over this rank's samples, `weight` their number. A parameter without a gradient counts as
        zero.
        """
        if not self.many:
            return loss
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        shared, loss = self.weighted_mean([*slopes, loss.detach()], weight)
        for parameter, slope in zip(parameters, shared):
            parameter.grad = slope
            slope.is_shared = True  # pyright: ignore[reportAttributeAccessIssue]
        return loss

    def weighted_mean(self, values: Sequence[Tensor], weight: Any = 1.0) -> tuple[list[Tensor], Tensor]:
        """Return the mean over ranks of tensors, the last of them apart; one sum of a flat tensor."""
        if not self.many:
            return list(values[:-1]), values[-1]
        like = values[0]
        weight = torch.as_tensor(weight, dtype=like.dtype, device=like.device).reshape(1)
        flat = torch.cat([x.detach().reshape(-1).to(like.dtype) for x in values])
        # a rank without samples has no mean; what it says does not count
        flat = torch.where(weight > 0, weight * flat, torch.zeros_like(flat))
        flat = self.sum(torch.cat([flat, weight]))
        parts = (flat[:-1] / flat[-1]).split([x.numel() for x in values])
        *first, last = (part.view_as(x) for part, x in zip(parts, values))
        return first, last

    # -- keeping together --------------------------------------------------------------------------------------------

    def refuse_differences(self, what: Mapping[str, Any]) -> None:
        """Raise where ranks do not have the same, naming what differs and on which rank."""
        if not self.many:
            return
        mine = {name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in what.items()}
        for rank, theirs in enumerate(self.gather(mine)):
            for name in mine.keys() | theirs.keys():
                if mine.get(name) != theirs.get(name):
                    raise PullbackError(
                        f"{name} on rank {self.rank} ({_short(what.get(name))}) is not that on rank {rank}; start all "
                        f"ranks with the same files, versions and options"
                    )

    def end_iteration(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Return whether any rank wants to stop and whether rank 0 wants to save; name a rank that is slow."""
        if not self.many:
            return stop, save
        now = time.perf_counter()
        busy = now - self._since - (self.waited - self._waited_before)
        table = torch.zeros(self.count, 3, dtype=torch.float64)
        table[self.rank] = torch.tensor([stop, save, busy])
        stops, saves, seconds = self.sum(table).T
        self._since, self._waited_before = time.perf_counter(), self.waited
        slowest = int(seconds.argmax())
        if seconds[slowest] > SLOW * seconds.quantile(0.5, interpolation="lower"):
            self._slow = slowest, (self._slow[1] + 1 if self._slow[0] == slowest else 1)
        else:
            self._slow = -1, 0
        if self.is_first and self._slow[1] >= SLOW_FOR and slowest not in self._named:
            self._named.add(slowest)
            others = float(seconds.quantile(0.5, interpolation="lower"))
            warnings.warn(
                f"rank {slowest} takes {float(seconds[slowest]):.3g} s for an iteration and the others {others:.3g} s, "
                f"and they wait for it; look at what else runs on its machine",
                stacklevel=3,
            )
        return bool(stops.any()), bool(saves[0])

    @contextmanager
    def talking_before_steps(self) -> Iterator[None]:
        """Inside this block every torch optimiser first takes the mean of its gradients over ranks.

        Gradients that `share_gradients` has made are left as they are.
        """
        if not self.many:
            yield
            return
        hook = register_optimizer_step_pre_hook(self._before_step)
        try:
            yield
        finally:
            hook.remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        if all(getattr(p.grad, "is_shared", False) for p in parameters):
            for p in parameters:
                # once: the next gradients may be written into the same tensor
                p.grad.is_shared = False
            return
        self.share_gradients(parameters, parameters[0].new_zeros(()))

    @contextmanager
    def _talking(self) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            raise self.lost(str(error)) from None
        finally:
            self.waited += time.perf_counter() - begun

    def lost(self, reason: str) -> RankError:
        """Return the error for a rank that does not answer; it names those that nothing is heard of."""
        self.has_lost = True
        missing: set[int] = set()
        if self._store is not None:
            # if the store is gone as well, nobody is named
            with suppress(RuntimeError):
                missing = self._silent(self._store)
        silent = f"rank {', '.join(map(str, sorted(missing)))} of {self.count}" if missing else "another rank"
        first = (reason.splitlines() or [""])[0][:120]
        error = RankError(
            f"{silent} has ended or does not answer ({first}); the last checkpoint is complete: the same command with "
            f"its resume option goes on from there, and `torchrun --max-restarts` by itself"
        )
        error.speaks = not missing or self.rank == min(set(range(self.count)) - missing, default=0)
        return error

    def _silent(self, store: Store) -> set[int]:
        """Return the ranks that do not say in time that they are still there."""
        store.set(f"still here {self.rank}", "1")
        until = time.perf_counter() + ANSWER
        missing = set(range(self.count))
        while missing and time.perf_counter() < until:
            missing = {k for k in missing if not store.check([f"still here {k}"])}
            time.sleep(0.02)
        return missing


_active: Ranks | None = None


def ranks() -> Ranks:
    """Return the ranks that run together: one, unless `start_ranks` joined others."""
    return _active or _alone()


@cache
def _alone() -> Ranks:
    return Ranks()


def start_ranks(timeout: float = TIMEOUT) -> Ranks:
    """Join the processes that `torchrun` started, and return them; without `torchrun` there is one.

    From then on environments share their worlds among ranks, searches their candidates and recordings, and a
    `thermal.Process` its elements. A rank that does not answer for `timeout` seconds ends all others.
    """
    global _active
    if _active is not None:
        return _active
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or not dist.is_available():
        return _alone()
    # its functions have the group of all ranks as a default, which they would keep alive if they came after it
    import_module("torch.distributed.nn.functional")
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    store, rank, count = next(iter(rendezvous("env://")))
    store.set_timeout(timedelta(seconds=timeout))
    # ranks that torchrun starts again find the same store, with the addresses of those that ended
    store = PrefixStore(f"pullback {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(
        backend, store=PrefixStore("group", store), rank=rank, world_size=count,
        timeout=timedelta(seconds=timeout),
    )  # fmt: skip
    signal.signal(signal.SIGTERM, _end)
    # threads of the group that wait for the interpreter when it ends abort the process: end them before
    atexit.register(_leave_at_exit)
    _active = Ranks(rank, count, store)
    _active.find_mailboxes(timeout)
    _active.refuse_differences(_versions())
    return _active


def leave_ranks() -> None:
    """End the communication between ranks; from then on this process is alone."""
    global _active
    if _active is not None:
        _active = None
        dist.destroy_process_group()


def _leave_at_exit() -> None:
    if _active is not None and not _active.has_lost:
        leave_ranks()


def _end(*_: Any) -> None:
    """End this rank where `torchrun` asks for it, because another one has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise ranks().lost("torchrun ends all")


def launch_name() -> str:
    """Return what tells one call of `torchrun` from others, the same after it has started its ranks again; or ""."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ""
    given = os.environ["TORCHELASTIC_RUN_ID"]
    # without an identifier of the user's: the process of torchrun, whose children ranks are
    return given if given not in ("", "none") else f"{platform.node()} {os.getppid()}"


def was_restarted() -> bool:
    """Return whether `torchrun` has started these ranks before, and one of them was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _versions() -> dict[str, str]:
    found = {}
    for name in ("pullback", "torch", "warp-lang", "numpy"):
        with suppress(PackageNotFoundError):
            found[f"the version of {name}"] = version(name)
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
