"""What a kernel's process gives up for good before any of a learner's code runs in it.

bubblewrap decides what a process sees. Two doors stay open that no name leads to: the kernel's key
store, which all processes of a user share, and files without a name, which fill memory or a disk
unseen. seccomp shuts them. Landlock lets files be made only in the sandbox's own folders, so that
the folder of the sockets, the one place on the disk, takes nothing but sockets.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

# System calls by number, and what the kernel calls the processor: linux/audit.h, unistd.h
PROCESSORS = {
    "x86_64": (0xC000003E, [248, 249, 250, 319, 29], [(2, 1), (257, 2)]),
    "aarch64": (0xC00000B7, [217, 218, 219, 279, 194], [(56, 2)]),
}  # add_key, request_key, keyctl, memfd_create, shmget; then open, openat, with their flags' place
EVERYWHERE = [425, 437, 447]  # io_uring_setup, openat2, memfd_secret
NAMELESS = 0x400000  # the bit of O_TMPFILE
X32 = 0x40000000  # from here on x86_64 has the same calls once more

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _PROCESSOR, _ARGUMENTS = 0, 4, 16  # where they lie in what a filter sees


def confine(folders: Iterable[str]) -> None:
    """Refuse those system calls, and files that are made anywhere but in these folders.

    Errors:
        OSError: the system or the processor knows no such filter
    """
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _only_in(folders)
    code = _filter()
    place = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(place))
    _call("prctl", _PR_SET_SECCOMP, _FILTER, program)


def _filter() -> bytes:
    """The seccomp program: eight bytes a step. A test that holds goes on, else it jumps over."""
    if platform.machine() not in PROCESSORS:
        raise OSError(errno.ENOSYS, f"no list of system calls for {platform.machine()}")
    processor, refused, opens = PROCESSORS[platform.machine()]
    steps = [(_LOAD, 0, 0, _PROCESSOR), (_EQUAL, 1, 0, processor)]
    steps += [(_RETURN, 0, 0, _REFUSE | errno.EPERM), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, X32), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    for number in refused + EVERYWHERE:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    for number, flags in opens:
        steps += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _ARGUMENTS + 8 * flags)]
        steps += [(_ANY_BIT, 0, 1, NAMELESS), (_RETURN, 0, 0, _REFUSE | errno.EOPNOTSUPP)]
        steps += [(_RETURN, 0, 0, _ALLOW)]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _only_in(folders: Iterable[str]) -> None:
    """Landlock, where the system has it: sockets may be made anywhere, all else in the folders."""
    create, add, restrict = 444, 445, 446
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(create, None, 0, 1)
    if version < 1:
        return
    # character device, folder, file, pipe, block device, link; from version 2 on: moving
    made = sum(1 << bit for bit in (6, 7, 8, 10, 11, 12)) | (1 << 13 if version > 1 else 0)
    rules = _call("syscall", create, struct.pack("Q", made), 8, 0)
    for folder in folders:
        opened = os.open(folder, os.O_PATH)
        _call("syscall", add, rules, 1, struct.pack("=Qi", made, opened), 0)
        os.close(opened)
    _call("syscall", restrict, rules, 0)
    os.close(rules)


def _call(function: str, *arguments: object) -> int:
    done = int(getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}{arguments[:1]}: {os.strerror(number)}")
    return done
