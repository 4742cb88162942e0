"""The C ABI: where the library is, its structs, its functions, its errors.

Everything that include/diloco says about memory is said here once more, for ctypes, and nowhere
else in the package. tests/test_abi.py compares the structs with the C compiler's and the number
of each function's arguments with the headers', so that the two cannot drift apart.

ctypes releases the interpreter's lock during every call and takes it for every callback.
"""

from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import logging
import os
import pathlib
import shlex
import threading
from ctypes import (CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_float, c_int,
                    c_size_t, c_uint32, c_uint64, c_void_p)
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._version import __version__
from .errors import BY_STATUS, Error, LibraryError

# ---- structs, as in the headers ------------------------------------------------------------


class Struct(ctypes.Structure):
    """A struct that gives the library its size, where it has a member for it."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        if self._fields_ and self._fields_[0][0] == "size":
            self.size = ctypes.sizeof(self)


MAX_DIMS = 4

# diloco_dtype and diloco_role.
DTYPES: Dict[str, int] = {"float32": 0, "int64": 1, "bool": 2, "bfloat16": 3, "float16": 4}
ITEM_SIZES: Dict[str, int] = {"float32": 4, "int64": 8, "bool": 1, "bfloat16": 2, "float16": 2}
ROLES: Dict[str, int] = {"parameter": 0, "frozen": 1, "buffer": 2}


class Tensor(Struct):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("dtype", c_int), ("role", c_int),
                ("n_dims", c_int), ("shape", c_size_t * MAX_DIMS), ("fragment", c_int)]


COPY_FN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
SYNCHRONISE_FN = CFUNCTYPE(c_int, c_void_p, c_void_p)
ALLOC_FN = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
RELEASE_FN = CFUNCTYPE(None, c_void_p, c_void_p)


class Device(Struct):
    _fields_ = [("user", c_void_p), ("stream", c_void_p), ("copy_in", COPY_FN),
                ("copy_out", COPY_FN), ("synchronise", SYNCHRONISE_FN), ("alloc", ALLOC_FN),
                ("release", RELEASE_FN), ("name", c_char_p)]


class StepReport(Struct):
    _fields_ = [("loss", c_double), ("samples", c_uint64), ("tokens", c_uint64)]


class RunInfo(Struct):
    _fields_ = [("run", c_char * 33), ("generation", c_uint32), ("entry", c_uint64),
                ("entries", c_uint64), ("position", c_uint64), ("positions", c_uint64),
                ("next_stop", c_uint64), ("fragments", c_uint32), ("step", c_uint64),
                ("sample", c_uint64), ("shard", c_int), ("resumed", c_bool),
                ("interrupted", c_bool), ("bytes_sent", c_uint64), ("bytes_received", c_uint64),
                ("loss_mean", c_double)]


class LogEntry(Struct):
    _fields_ = [("entry", c_uint64), ("commit", c_bool), ("fragment", c_uint32),
                ("position", c_uint64), ("committer", c_char_p), ("reason", c_char_p),
                ("n_members", c_size_t), ("members", POINTER(c_char_p)),
                ("weights", POINTER(c_float)), ("roster", POINTER(c_char_p)),
                ("n_roster", c_size_t), ("loss", c_double), ("bytes", c_uint64),
                ("combined_by", c_char_p), ("combined_bytes", c_uint64), ("steps", c_uint64),
                ("samples", c_uint64), ("simulated_s", c_double), ("base", c_char_p),
                ("result", c_char_p), ("prev", c_char_p), ("n_rejected", c_size_t),
                ("rejected", POINTER(c_char_p)), ("rejected_for", POINTER(c_char_p))]


class Rejection(Struct):
    _fields_ = [("reason", c_char * 16), ("n", c_uint64)]


class Rejections(Struct):
    _fields_ = [("n", c_uint64), ("n_reasons", c_size_t), ("reasons", Rejection * 16)]


class ReplicaStatus(Struct):
    _fields_ = [("replica", c_char * 32), ("generation", c_uint32), ("ended", c_bool),
                ("alive", c_bool), ("seen", c_bool), ("step", c_uint64), ("entry", c_uint64),
                ("position", c_uint64), ("steps_per_s", c_double), ("host", c_char * 64),
                ("deadline_s", c_double), ("up_bps", c_double), ("down_bps", c_double),
                ("request_s", c_double), ("rejected", Rejections), ("strikes", c_uint64),
                ("banned_until", c_uint64), ("address", c_char * 288), ("from_peers", c_uint64),
                ("from_store", c_uint64), ("entry_s", c_double), ("beat_time", c_double)]


class RunWait(Struct):
    _fields_ = [("entry", c_uint64), ("position", c_uint64), ("n_awaited", c_size_t),
                ("n_there", c_size_t), ("n_missing", c_size_t), ("missing", (c_char * 32) * 64)]


class RunStatus(Struct):
    _fields_ = [("run", c_char * 33), ("preset", c_char * 32), ("program", c_char * 32),
                ("config_digest", c_char * 33), ("model", c_char * 32), ("parameters", c_uint64),
                ("entries", c_uint64), ("entries_total", c_uint64), ("commits", c_uint64),
                ("aborts", c_uint64), ("snapshot", c_uint64), ("exchange", c_char * 16),
                ("entry_written", c_uint64), ("entry_read", c_uint64), ("done", c_bool),
                ("wait", POINTER(RunWait)), ("n_replicas", c_size_t),
                ("replicas", POINTER(POINTER(ReplicaStatus))), ("memory", c_void_p),
                ("rejected", Rejections), ("n_banned", c_size_t), ("alive_s", c_double),
                ("n_left_out", c_size_t)]


class VerifyReport(Struct):
    _fields_ = [("entries", c_uint64), ("chained", c_uint64), ("first_replayed", c_uint64),
                ("replayed", c_uint64), ("commits", c_uint64), ("aborts", c_uint64),
                ("voids", c_uint64), ("complete", c_bool), ("digest", c_char * 33),
                ("first_chained", c_uint64)]


class PresetValue(Struct):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Preset(Struct):
    _fields_ = [("name", c_char_p), ("summary", c_char_p), ("citation", c_char_p),
                ("values", POINTER(PresetValue))]


class Reduce(Struct):
    _fields_ = [("entry", c_uint64), ("fragment", c_uint32), ("part", c_uint32),
                ("tensor", c_char_p), ("quantize", c_bool), ("data", c_void_p), ("n", c_size_t)]


ALL_REDUCE_FN = CFUNCTYPE(c_int, c_void_p, POINTER(Reduce), POINTER(c_void_p))
WAIT_FN = CFUNCTYPE(c_int, c_void_p, c_void_p)
QUORUM_FN = CFUNCTYPE(c_int, c_void_p)
CURRENT_STEP_FN = CFUNCTYPE(c_uint64, c_void_p)
ERRORED_FN = CFUNCTYPE(c_bool, c_void_p)
COMMIT_FN = CFUNCTYPE(c_int, c_void_p, c_bool, POINTER(c_bool))
READ_FN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t)
WRITE_FN = READ_FN


class Communicator(Struct):
    _fields_ = [("size", c_size_t), ("user", c_void_p), ("all_reduce", ALL_REDUCE_FN),
                ("wait", WAIT_FN), ("start_quorum", QUORUM_FN),
                ("current_step", CURRENT_STEP_FN), ("errored", ERRORED_FN),
                ("should_commit", COMMIT_FN)]


class LoopCopy(Struct):
    _fields_ = [("size", c_size_t), ("user", c_void_p), ("read", READ_FN), ("write", WRITE_FN),
                ("staging", c_void_p), ("n_staging", c_size_t)]


class LoopOuter(Struct):
    _fields_ = [("entry", c_uint64), ("fragment", c_uint32), ("n", c_size_t),
                ("theta", c_void_p), ("g", c_void_p)]


LOOP_OUTER_FN = CFUNCTYPE(c_int, c_void_p, POINTER(LoopOuter))


class LoopOptions(Struct):
    _fields_ = [("size", c_size_t), ("fragments", c_uint32), ("sync_every", c_uint64),
                ("fragment_sync_delay", c_uint64), ("fragment_update_alpha", c_double),
                ("bucket_bytes", c_size_t), ("should_quantize", c_bool), ("keep_local", c_bool),
                ("n_threads", c_int), ("outer", LOOP_OUTER_FN), ("outer_user", c_void_p),
                ("config", c_void_p), ("copy", POINTER(LoopCopy))]


class LoopInfo(Struct):
    _fields_ = [("size", c_size_t), ("step", c_uint64), ("entry", c_uint64), ("fragment", c_int),
                ("commits", c_uint64), ("refused", c_uint64)]


LOOP_VECTORS = 3


class LoopFragment(Struct):
    _fields_ = [("size", c_size_t), ("n", c_size_t), ("theta", c_void_p), ("n_vectors", c_int),
                ("vectors", c_void_p * LOOP_VECTORS), ("names", c_char_p * LOOP_VECTORS),
                ("commits", POINTER(c_uint64))]


USER_VECTORS = 2


class UserStep(Struct):
    _fields_ = [("fragment", c_uint32), ("commits", c_uint64), ("learning_rate", c_float),
                ("momentum", c_float), ("n", c_size_t), ("theta", c_void_p),
                ("vectors", c_void_p * USER_VECTORS), ("g", c_void_p)]


USER_STEP_FN = CFUNCTYPE(c_int, c_void_p, POINTER(UserStep))


class UserOuter(Struct):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("user", c_void_p), ("n_vectors", c_int),
                ("vector_names", c_char_p * USER_VECTORS), ("step", USER_STEP_FN)]


class ClientTurn(Struct):
    _fields_ = [("client", c_uint64), ("entry", c_uint64), ("steps", c_uint64),
                ("next_sample", c_uint64), ("fresh", c_bool)]


class ClientReport(Struct):
    _fields_ = [("holds", c_uint64), ("steps", c_uint64), ("samples", c_uint64),
                ("tokens", c_uint64), ("loss", c_double)]


FIT_FN = CFUNCTYPE(c_int, c_void_p, POINTER(ClientTurn), POINTER(ClientReport))
ROUND_FN = CFUNCTYPE(c_int, c_void_p, c_uint64)


class Clients(Struct):
    _fields_ = [("user", c_void_p), ("fit", FIT_FN), ("round", ROUND_FN)]


class UserParts(Struct):
    _fields_ = [("outer", POINTER(UserOuter)), ("combiner", c_void_p), ("codec", c_void_p),
                ("store", c_void_p)]


STRUCTS: Dict[str, Any] = {
    "diloco_client_turn": ClientTurn, "diloco_client_report": ClientReport,
    "diloco_clients": Clients,
    "diloco_user_step": UserStep,
    "diloco_user_outer": UserOuter,
    "diloco_user_parts": UserParts,
    "diloco_tensor": Tensor,
    "diloco_device": Device,
    "diloco_reduce": Reduce,
    "diloco_communicator": Communicator,
    "diloco_loop_copy": LoopCopy,
    "diloco_loop_outer": LoopOuter,
    "diloco_loop_options": LoopOptions,
    "diloco_loop_info": LoopInfo,
    "diloco_loop_fragment": LoopFragment,
    "diloco_step_report": StepReport,
    "diloco_run_info": RunInfo,
    "diloco_log_entry": LogEntry,
    "diloco_rejection": Rejection,
    "diloco_rejections": Rejections,
    "diloco_replica_status": ReplicaStatus,
    "diloco_run_wait": RunWait,
    "diloco_run_status": RunStatus,
    "diloco_verify_report": VerifyReport,
    "diloco_preset_value": PresetValue,
    "diloco_preset": Preset,
}

# ---- functions, as in the headers ----------------------------------------------------------

RECORD_FN = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
LR_FN = CFUNCTYPE(c_double, c_void_p, c_uint64)
ON_WAIT_FN = CFUNCTYPE(None, c_void_p, c_uint64, c_double)
PROBE_FN = CFUNCTYPE(c_int, c_void_p, POINTER(c_double), POINTER(c_void_p), c_size_t)
FILL_FN = CFUNCTYPE(c_int, c_void_p, c_void_p)
LOG_FN = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
ENTRY_FN = CFUNCTYPE(c_int, c_void_p, POINTER(LogEntry))
LINE_FN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
VERIFY_FN = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)

Status = c_int
Handle = c_void_p  # diloco_run *, diloco_config *, diloco_loop *

FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "diloco_version": (c_char_p, []),
    "diloco_error_text": (c_char_p, []),
    "diloco_status_name": (c_char_p, [Status]),
    "diloco_log_set": (None, [LOG_FN, c_void_p, c_int]),
    "diloco_config_create": (Handle, []),
    "diloco_config_destroy": (None, [Handle]),
    "diloco_config_set": (Status, [Handle, c_char_p, c_char_p, c_char_p]),
    "diloco_config_get": (Status, [Handle, c_char_p, c_void_p, c_size_t]),
    "diloco_config_origin": (c_char_p, [Handle, c_char_p]),
    "diloco_preset_at": (POINTER(Preset), [c_size_t]),
    "diloco_preset_apply": (Status, [Handle, c_char_p]),
    "diloco_run_open_with_sized": (Status, [POINTER(Handle), Handle, c_char_p,
                                            POINTER(UserParts), c_size_t]),
    "diloco_run_tensor_sized": (Status, [Handle, POINTER(Tensor), c_size_t]),
    "diloco_run_device_sized": (Status, [Handle, POINTER(Device), c_size_t]),
    "diloco_run_gradient": (Status, [Handle, c_char_p, c_void_p]),
    "diloco_run_private": (Status, [Handle, c_char_p, c_void_p, c_size_t]),
    "diloco_copy": (None, [c_void_p, c_void_p, c_size_t]),
    "diloco_run_private_by": (Status, [Handle, c_char_p, c_void_p, c_size_t, FILL_FN, c_void_p]),
    "diloco_run_base": (Status, [Handle, c_char_p, c_char_p, c_void_p, c_size_t]),
    "diloco_run_data_digest": (Status, [Handle, c_char_p]),
    "diloco_run_on_record": (None, [Handle, RECORD_FN, c_void_p]),
    "diloco_run_record": (None, [Handle, c_char_p, c_size_t]),
    "diloco_run_on_lr": (None, [Handle, LR_FN, c_void_p]),
    "diloco_run_on_wait": (None, [Handle, c_double, ON_WAIT_FN, c_void_p]),
    "diloco_run_on_probe": (None, [Handle, PROBE_FN, c_void_p]),
    "diloco_clients_run_sized": (Status, [Handle, POINTER(Clients), c_size_t]),
    "diloco_division_create": (Status, [POINTER(Handle), Handle, c_void_p, c_uint64, c_uint64]),
    "diloco_division_destroy": (None, [Handle]),
    "diloco_division_size": (c_uint64, [Handle, c_uint64]),
    "diloco_division_list": (Status, [c_void_p, Handle, c_uint64]),
    "diloco_run_join": (Status, [Handle]),
    "diloco_run_create": (Status, [Handle]),
    "diloco_step_sized": (Status, [Handle, POINTER(StepReport), c_size_t]),
    "diloco_run_split": (Status, [Handle]),
    "diloco_run_prepare_sized": (Status, [Handle, POINTER(StepReport), c_size_t,
                                          POINTER(c_bool)]),
    "diloco_run_perform": (Status, [Handle]),
    "diloco_run_verify_sized": (Status, [Handle, POINTER(VerifyReport), c_size_t, c_int]),
    "diloco_run_done": (c_bool, [Handle]),
    "diloco_run_now_sized": (None, [Handle, POINTER(RunInfo), c_size_t]),
    "diloco_run_theta": (Status, [Handle, POINTER(c_void_p), c_size_t]),
    "diloco_run_interrupt": (None, [Handle]),
    "diloco_run_save": (Status, [Handle]),
    "diloco_run_leave": (Status, [Handle]),
    "diloco_run_close": (None, [Handle]),
    "diloco_log_walk": (Status, [c_char_p, c_uint64, ENTRY_FN, c_void_p]),
    "diloco_log_length": (Status, [POINTER(c_uint64), c_char_p]),
    "diloco_record_walk": (Status, [c_char_p, LINE_FN, c_void_p]),
    "diloco_run_status_read_sized": (Status, [POINTER(RunStatus), c_size_t, c_char_p, c_double]),
    "diloco_run_status_free": (None, [POINTER(RunStatus)]),
    "diloco_run_config": (Status, [Handle, c_char_p]),
    "diloco_verify_sized": (Status, [POINTER(VerifyReport), c_size_t, c_char_p, c_int, VERIFY_FN,
                                     c_void_p]),
    "diloco_verify_from_snapshot_sized": (Status, [POINTER(VerifyReport), c_size_t, c_char_p, c_int,
                                                   VERIFY_FN, c_void_p]),
    "diloco_theta_read": (Status, [POINTER(c_void_p), POINTER(c_size_t), POINTER(c_uint64),
                                   c_char_p, c_uint64]),
    "diloco_free": (None, [c_void_p]),
    "diloco_loop_create": (Status, [POINTER(Handle), POINTER(LoopOptions), POINTER(Communicator)]),
    "diloco_loop_tensor_sized": (Status, [Handle, POINTER(Tensor), c_size_t]),
    "diloco_loop_start": (Status, [Handle]),
    "diloco_loop_step": (Status, [Handle]),
    "diloco_loop_prepare": (Status, [Handle]),
    "diloco_loop_perform": (Status, [Handle, POINTER(c_bool)]),
    "diloco_loop_now": (None, [Handle, POINTER(LoopInfo)]),
    "diloco_loop_backup": (Status, [Handle]),
    "diloco_loop_restore": (Status, [Handle]),
    "diloco_loop_view": (Status, [Handle, c_uint32, POINTER(LoopFragment)]),
    "diloco_loop_save": (Status, [Handle, c_char_p]),
    "diloco_loop_load": (Status, [Handle, c_char_p]),
    "diloco_loop_destroy": (None, [Handle]),
}

# ---- finding and loading ---------------------------------------------------------------------

FILE = "libdiloco-train.so"  # which brings libdiloco.so with it, from beside itself


def candidates() -> Sequence[str]:
    """The places of the library, in the order of the search: DILOCO_LIBRARY (a
    file, or the folder that has it), the wheel, the system."""
    said = os.environ.get("DILOCO_LIBRARY")
    if said:
        path = pathlib.Path(said)
        return [str(path / FILE if path.is_dir() else path)]
    inside = pathlib.Path(__file__).parent / "_lib" / FILE
    if inside.exists():
        return [str(inside)]
    found = ctypes.util.find_library("diloco-train")
    return [found] if found else []


def _open() -> ctypes.CDLL:
    where = candidates()
    if not where:
        raise LibraryError(
            f"{FILE} was not found: install the package with `pip install ./python`, which builds "
            "it, or name a build's folder in the environment as DILOCO_LIBRARY")
    if os.environ.get("DILOCO_LIBRARY") and not os.path.exists(where[0]):
        raise LibraryError(
            f"{where[0]} does not exist, and DILOCO_LIBRARY names it: name a build's folder that has "
            "it, or unset DILOCO_LIBRARY")
    try:
        return ctypes.CDLL(where[0])
    except OSError as error:
        raise LibraryError(
            f"{where[0]} does not load: {error}. It is of another platform, or a library of the "
            "system is missing: install the wheel of this platform, or build one here with `pip "
            "install ./python`") from error


def _declare(library: ctypes.CDLL) -> None:
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibraryError(f"{library._name} has no {name}: it is of another version than "
                               f"this package, {__version__}") from None
        function.restype = result
        function.argtypes = arguments


def _check_version(library: ctypes.CDLL) -> None:
    theirs = library.diloco_version().decode()
    if theirs.split(".")[:2] != __version__.split(".")[:2]:
        raise LibraryError(f"{library._name} is version {theirs}, this package is "
                           f"{__version__}: install both from one release")


_library: Optional[ctypes.CDLL] = None
_loading = threading.Lock()  # of _library


def lib() -> ctypes.CDLL:
    """The library, loaded and declared at the first call. LibraryError."""
    global _library
    if _library is None:
        with _loading:
            if _library is None:
                library = _open()
                _declare(library)
                _check_version(library)
                _route_log(library)
                _library = library
    return _library


# ---- its log lines --------------------------------------------------------------------------

_LEVELS = [logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG]  # diloco_log_level
_logger = logging.getLogger("diloco")


def _log_line(_user: Any, level: int, line: bytes) -> None:
    _logger.log(_LEVELS[level], "%s", line.decode("utf-8", "replace"))


_log_fn = LOG_FN(_log_line)


def _route_log(library: ctypes.CDLL) -> None:
    """The library's lines go to Python's logger "diloco", until the interpreter ends."""
    library.diloco_log_set(_log_fn, None, len(_LEVELS) - 2)
    atexit.register(library.diloco_log_set, LOG_FN(), None, 0)


WAIT_REPORTED_S = 10.0  # shortest wait that is reported; the next one is twice as long


def warn_of_waits(handle: Any, store: str) -> Any:
    """Warn of long waits for other replicas. The result has to be kept as long as the run. A
    secret may follow the # of a store's address."""
    def warn(_user: Any, entry: int, waited_s: float) -> None:
        _logger.warning(
            "waiting for entry %d, %.0f s so far; to see which replicas are missing: "
            "diloco status %s --why", entry, waited_s, shlex.quote(store.partition("#")[0]))
    callback = ON_WAIT_FN(warn)
    lib().diloco_run_on_wait(handle, WAIT_REPORTED_S, callback, None)
    return callback


# ---- errors ---------------------------------------------------------------------------------


def check(status: int) -> None:
    """Raise what a status means, with the library's sentence. Call it on the thread on which
    the call failed, before another call into the library."""
    if status == 0:
        return
    library = lib()
    text = library.diloco_error_text().decode("utf-8", "replace")
    raise BY_STATUS.get(status, Error)(text or library.diloco_status_name(status).decode())


def text(value: str) -> bytes:
    """A string for the library, which reads up to the first zero byte."""
    if "\0" in value:
        raise ValueError(f"a zero byte in {value!r}")
    return value.encode()
