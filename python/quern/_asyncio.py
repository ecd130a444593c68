# SPDX-License-Identifier: Apache-2.0
"""Awaits a request in an event loop: the loop watches the request's descriptor."""
import asyncio


async def wait(request):
    if not request.is_ready:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def on_readable():
            loop.remove_reader(request.fileno())
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(request.fileno(), on_readable)
        try:
            await ready
        except asyncio.CancelledError:
            request.cancel()
            raise
        finally:
            loop.remove_reader(request.fileno())
    return request.result(0)
