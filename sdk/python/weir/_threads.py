# SPDX-License-Identifier: Apache-2.0
"""Waiting for the service without holding up an event loop."""

import contextvars
import threading
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import asyncio

    from ._client import Handle


async def in_thread(work: "Callable[[Handle], Any]") -> Any:
    """What work() returns or raises, in a thread of its own with this context. Being cancelled gives its request up."""
    import asyncio

    from ._client import Handle

    loop = asyncio.get_running_loop()
    done: "asyncio.Future[Any]" = loop.create_future()
    handle, context = Handle(), contextvars.copy_context()

    def finish(result: Any, error: Any) -> None:
        if done.cancelled():
            return
        if isinstance(error, StopIteration):  # no future takes it
            stopped, error = error, RuntimeError("StopIteration was raised")
            error.__cause__ = stopped
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def run() -> None:
        result = error = None
        try:
            result = context.run(work, handle)
        except BaseException as e:  # it belongs to the one who waits
            error = e
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=run, name="weir", daemon=True).start()
    try:
        return await done
    except BaseException:  # cancelled, or closed in the middle; of what has ended there is nothing to give up
        handle.cancel()
        if not loop.is_closed():
            done.cancel()
        raise
