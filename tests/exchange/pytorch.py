"""PyTorch's end of tests/exchange/pytorch.rs.

    pytorch.py serve libuv|poll      a TCPStore; says its address and what it is, and looks at the end of stdin what was left there
    pytorch.py host libuv|poll       the same, which does not look
    pytorch.py use PORT RANK         one of two clients of a TCPStore
"""

import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

NEW = hasattr(dist.TCPStore, "append")
TIME = timedelta(seconds=120)


def store(port, server, libuv=True):
    backend = {"use_libuv": libuv} if NEW else {}
    return dist.TCPStore("127.0.0.1", port, None, server, timeout=TIME, wait_for_workers=False, **backend)


def host(backend):
    ours = store(0, True, backend == "libuv")
    ours.set("from-torch", "x")
    print(f"127.0.0.1:{ours.port}")
    print(torch.__version__, getattr(ours, "libuvBackend", False), flush=True)
    sys.stdin.readline()
    return ours


def serve(backend):
    ours = host(backend)
    assert ours.get("last").startswith(b"words\0")
    assert ours.get("text").startswith(b"value\0")
    assert ours.get("count") == b"42", ours.get("count")
    assert ours.add("count", 1) == 43


def fails(what):
    try:
        what()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it is done")


def use(port, rank):
    ours = store(port, False)
    other = 1 - rank
    ours.set(f"key/{rank}", "first")
    ours.set(f"key/{rank}", "second")
    ours.wait([f"key/{other}"], TIME)
    assert ours.get(f"key/{other}") in (b"first", b"second")
    ours.add("count", 2 + rank)
    assert ours.add("count", 2 + rank) >= 2 * (2 + rank)
    # Compare-and-set, as PyTorch has it.
    assert ours.compare_set(f"swap/{rank}", "x", "y") == b"x"
    assert ours.compare_set(f"swap/{rank}", "", "y") == b"y"
    assert ours.compare_set(f"swap/{rank}", "x", "z") == b"y"
    assert ours.compare_set(f"swap/{rank}", "y", "z") == b"z"
    assert ours.num_keys() >= 3
    assert ours.delete_key(f"swap/{rank}") and not ours.delete_key(f"swap/{rank}")
    ours.set(f"large/{rank}", "l" * (5 << 20))
    assert len(ours.get(f"large/{rank}")) == 5 << 20
    # What others have set under a prefix.
    inner = dist.PrefixStore("inner", ours)
    inner.set(f"met/{rank}", "hello")
    assert inner.get(f"met/{other}") == b"hello"
    if NEW:
        more(ours, rank)
    # Another client wakes one that waits.
    late = store(port, False)
    timer = threading.Timer(0.2, late.set, [f"late/{rank}", "x"])
    timer.start()
    ours.wait([f"late/{rank}"], TIME)
    ours.set(f"met/{rank}", "hello")
    assert ours.get("from-rust").startswith(b"7\0")
    # The last, as an old client cannot go on behind it.
    fails(lambda: ours.wait(["never"], timedelta(milliseconds=200)))
    if NEW:
        assert ours.get(f"late/{rank}") == b"x"
        ours.set(f"after/{rank}", "x")
        assert ours.check([f"after/{rank}"])


def more(ours, rank):
    names = [f"multi/{rank}/{at}" for at in range(3)]
    ours.multi_set(names, ["a", "", "c"])
    assert ours.multi_get(names) == [b"a", b"", b"c"]
    assert ours.check(names) and not ours.check(names + ["never"])
    ours.append(names[0], "bc")
    ours.append(f"appended/{rank}", "x")
    assert (ours.get(names[0]), ours.get(f"appended/{rank}")) == (b"abc", b"x")
    if hasattr(ours, "queue_push"):
        ours.queue_push(f"queue/{rank}", "1")
        ours.queue_push(f"queue/{rank}", "2")
        assert ours.queue_len(f"queue/{rank}") == 2
        assert [ours.queue_pop(f"queue/{rank}") for _ in range(2)] == [b"1", b"2"]
    if hasattr(ours, "list_keys"):
        assert any(name in key for key in ours.list_keys() for name in names[:1])


if sys.argv[1] == "serve":
    serve(sys.argv[2])
elif sys.argv[1] == "host":
    host(sys.argv[2])
else:
    use(int(sys.argv[2]), int(sys.argv[3]))
