"""Running plays: a person, an environment in a worker, and the connected page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rlds_creator.identifiers import new_identifier
from rlds_creator.model import (
    Assignment,
    Environment,
    EpisodeRecord,
    EpisodeState,
    Mode,
    Person,
    Study,
)
from rlds_creator.server import messages
from rlds_creator.server.errors import (
    BadRequestError,
    ServerError,
    ServiceUnavailableError,
    TooManyError,
    without_folders,
)
from rlds_creator.server.limits import Bucket, Buckets
from rlds_creator.server.page import Page
from rlds_creator.server.workers import Worker, WorkerFactory

__all__ = ["Choose", "EpisodePlan", "Limits", "Play", "Plays", "Save"]

logger = logging.getLogger(__name__)

_CLOSE_POLICY_VIOLATION = 1008
_LIVE_STATES = (EpisodeState.PLAYING, EpisodeState.ENDED)
# The states after which the study chooses again; otherwise, the environment is repeated.
_FINISHED_STATES = (EpisodeState.COMPLETED, EpisodeState.CANCELLED)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of plays: counts, rates, and timeouts in seconds.

    Attributes:
      players: The maximum number of concurrent players.
      starts: The maximum number of plays that a person may start in a burst.
      starts_per_minute: The maximum rate of starts after a burst.
      until_pause: The time without an ack after which a real-time environment is paused.
      until_end: The time without a page after which a play ends.
      until_idle: The time without an input after which a real-time environment is paused.
      until_expired: The time without an input after which a play ends.
      until_hello: The timeout for the first message of a page.
      messages_per_second: The maximum rate of messages of a page; a faster page is delayed.
      max_invalid_messages: The maximum number of invalid messages; one more ends the connection.
    """

    players: int = 16
    starts: int = 5
    starts_per_minute: float = 30.0
    until_pause: float = 2.0
    until_end: float = 60.0
    until_idle: float = 30.0
    until_expired: float = 900.0
    until_hello: float = 10.0
    messages_per_second: float = 300.0
    max_invalid_messages: int = 20


Save = Callable[[EpisodeRecord, bool], Awaitable[tuple[EpisodeRecord, bool]]]
"""Stores the current state of an episode, see `Recordings.save`."""


@dataclasses.dataclass(frozen=True)
class EpisodePlan:
    """The environment and the seed of the next episode.

    Attributes:
      environment: The environment.
      python: The interpreter of its worker.
      next_seed: The seed of the next episode; None draws one.
    """

    environment: Environment
    python: str
    next_seed: int | None


Choose = Callable[[], Awaitable[EpisodePlan]]
"""Chooses the environment of the next episode; raises a `ServerError` if none is left."""


@dataclasses.dataclass(eq=False)
class Play:
    """A play: one person plays an environment, episode after episode.

    If the study assigns environments, it chooses one for each episode. Each environment has a
    worker of its own.

    Attributes:
      person: The player.
      study: The study.
      choose: Chooses the environment of each episode, if the study assigns environments.
      save: See `Save`.
      create_worker: Creates a worker, see `Worker`.
      message: The start message of workers, without the environment.
      is_chosen: Whether all episodes are of one environment, chosen by the player.
      id: The identifier of the play, also the session of its episodes.
      environment: The current environment.
      worker: The worker of the environment.
      page: The connected page; None if there is none.
      is_over: Whether the play has ended: the worker has ended, and all episodes are stored.
    """

    person: Person
    study: Study
    choose: Choose
    save: Save
    create_worker: WorkerFactory
    message: Mapping[str, Any]
    is_chosen: bool
    id: str = dataclasses.field(default_factory=new_identifier)
    environment: Environment = dataclasses.field(init=False)
    worker: Worker = dataclasses.field(init=False)
    page: Page | None = None
    is_over: bool = False

    def __post_init__(self) -> None:
        self.is_chosen |= self.study.assignment is Assignment.CHOICE
        # True during the choice of the next environment: page and worker exchange no messages.
        self._is_choosing_environment = False
        self._worker_end_reason = ""
        self._loop = asyncio.get_running_loop()
        self._disconnected_since = self._loop.time()
        self._has_ended = asyncio.Event()
        self._end_time = 0.0
        self._end_reason = ""
        self._ready_message: dict[str, Any] | None = None
        self._state_message: dict[str, Any] | None = None
        self._error_message: dict[str, Any] | None = None
        self._frame: bytes | None = None
        self._episode: EpisodeRecord | None = None
        self._is_paused_for_page = False
        self._save_queue: asyncio.Queue[tuple[EpisodeRecord, bool] | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, plan: EpisodePlan) -> None:
        """Starts the worker of the first environment, see `Worker.start`."""
        await self._start_worker(plan)
        self._spawn(self._save_episodes())

    async def _start_worker(self, plan: EpisodePlan) -> None:
        self.environment = plan.environment
        self._ready_message = self._state_message = self._error_message = self._frame = None
        self._is_paused_for_page = False
        self.worker = self.create_worker(self._on_worker_message, self._on_worker_end)
        message = {
            **self.message,
            "environment": msgspec.to_builtins(plan.environment),
            "env_id": plan.environment.id,
            "next_seed": plan.next_seed,
            "number": 0 if self._episode is None else self._episode.number + 1,
        }
        await self.worker.start(plan.python, message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- The page.

    def attach(self, page: Page) -> None:
        """Connects a page; an earlier page of the play is disconnected."""
        if self.page is not None:
            self.page.bye("replaced")
            self._pause_for_page()
        self.page = page
        self._send_hello(page)
        self._send_progress(page)
        if self.is_over:
            page.bye(self._end_reason)

    def describe(self) -> dict[str, Any]:
        """Returns the identifier, the study and the environment of the play, in types of JSON."""
        study = {name: getattr(self.study, name) for name in ("id", "name", "instructions")}
        environment = msgspec.to_builtins(self.environment)
        return {"play": self.id, "study": study, "environment": environment}

    def _send_hello(self, page: Page) -> None:
        page.queue({"op": "hello", **self.describe(), "person": msgspec.to_builtins(self.person)})

    def _send_progress(self, page: Page) -> None:
        for message in (self._ready_message, self._state_message, self._error_message):
            if message is not None:
                page.queue(message)
        if self._frame is not None:
            page.show(self._frame)

    def _send_to_page(self, message: dict[str, Any]) -> None:
        if self.page is not None:
            self.page.queue(message)

    def _send_error(self, code: str, text: str) -> None:
        """Sends the error that ends the play to the page, now and after each new connection."""
        self._error_message = {"op": "error", "code": code, "message": text, "fatal": True}
        self._send_to_page(self._error_message)

    def detach(self, page: Page) -> None:
        """Disconnects a page. The play waits for another page of the same person."""
        if self.page is page:
            self.page = None
            self._disconnected_since = self._loop.time()
            self._pause_for_page()

    def handle_message(self, message: Any) -> None:
        """Handles a message of the page, see `messages`."""
        if isinstance(message, messages.Ack):
            if self.page is not None:
                self.page.ack(message.frame)
        elif not isinstance(message, messages.Hello):
            self._send({"why": "user", **msgspec.to_builtins(message)})

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self._is_choosing_environment:
            self.worker.send(message)

    def _pause_for_page(self) -> None:
        if not self._is_paused_for_page:
            self._is_paused_for_page = True
            self._send({"op": "control", "do": "pause", "why": "network"})

    def tick(self, now: float, limits: Limits) -> None:
        """Pauses the play if the page is too slow; ends it if no page connects."""
        page, is_async = self.page, self.environment.mode is Mode.ASYNC
        if page is None and now - self._disconnected_since > limits.until_end:
            self._request_end("expired")
        if page is not None and is_async and page.seconds_without_ack(now) > limits.until_pause:
            self._pause_for_page()

    # --- The worker.

    def _on_worker_message(self, message: dict[str, Any] | bytes) -> None:
        if isinstance(message, bytes):
            self._frame = message
            if self.page is not None and not self._is_choosing_environment:
                self.page.show(message)
            return
        match message["op"]:
            case "ready":
                self._ready_message = message
            case "state":
                self._state_message = message
                self._is_paused_for_page &= message.get("state") != "running"
            case "episode":
                self._on_episode(message["episode"])
                return
            case "error":
                if message["details"]:
                    logger.warning("play %s: %s", self.id, message["details"])
                text = without_folders(message["message"])[:2000]
                code = "environment" if message["fatal"] else "refused"
                fatal = {"fatal": message["fatal"]}
                message = {"op": "error", "code": code, "message": text, **fatal}
                if message["fatal"]:
                    self._error_message = message
            case _:
                return
        if not self._is_choosing_environment:
            self._send_to_page(message)

    def _on_episode(self, description: Mapping[str, Any]) -> None:
        ids = {"study": self.study.id, "environment": self.environment.id}
        ids |= {"session": self.id, "person": self.person.id}
        episode = self._episode = msgspec.convert({**description, **ids}, EpisodeRecord)
        self._is_choosing_environment = self._chooses_environment_after(episode)
        # The log of a failed episode may have one step more than the worker has reported.
        self._save_queue.put_nowait((episode, episode.state is EpisodeState.FAILED))

    def _chooses_environment_after(self, episode: EpisodeRecord) -> bool:
        return not self.is_chosen and episode.state in _FINISHED_STATES

    def _on_worker_end(self, why: str) -> None:
        if self._is_choosing_environment:
            self._worker_end_reason = why
            return
        reason = {"stopped": self._end_reason or "closed", "ended": "expired"}.get(why, "failed")
        self._end_reason = reason
        is_failed = why in ("crashed", "hung")
        if self._error_message is None and is_failed:
            failure = "stopped" if why == "crashed" else "does not respond"
            self._send_error(why, f"The environment {failure}.")
        if self._episode is not None and self._episode.state in _LIVE_STATES:
            state = EpisodeState.FAILED if is_failed else EpisodeState.ABANDONED
            error = self._error_message["message"] if self._error_message is not None else ""
            reason = self._episode.reason or ("failed" if is_failed else "user")
            record = msgspec.structs.replace(self._episode, state=state, reason=reason, error=error)
            self._save_queue.put_nowait((record, True))
        self._save_queue.put_nowait(None)

    async def _save_episodes(self) -> None:
        try:
            while (item := await self._save_queue.get()) is not None:
                await self._save_episode(*item)
        finally:  # Tasks that wait for the end continue even if this task is cancelled.
            if self.page is not None:
                self.page.bye(self._end_reason)
            self.is_over = True
            self._end_time = self._loop.time()
            self._has_ended.set()

    async def _save_episode(self, episode: EpisodeRecord, needs_recovery: bool) -> None:
        try:
            episode_record, may_continue = await self.save(episode, needs_recovery)
        except Exception as error:
            # The next start of the server stores the episode, from its log.
            if not isinstance(error, ServerError):
                logger.exception("episode %s could not be stored", episode.id)
            self._request_end("failed", "The episode is recorded, but could not be listed.")
        else:
            self._send_to_page({"op": "episode", "episode": msgspec.to_builtins(episode_record)})
            if not may_continue:
                self._request_end("quota")
        if self._chooses_environment_after(episode):
            await self._start_next_episode()

    async def _start_next_episode(self) -> None:
        """Starts the next episode in the environment that the study chooses."""
        try:
            plan = None if self._end_reason else await self.choose()
            if plan is not None and plan.environment != self.environment:
                self.environment = plan.environment
                if self.page is not None:
                    self.page.reset_frames()
                    self._send_hello(self.page)
                await self.worker.stop()
                await self._start_worker(plan)
                self._worker_end_reason = ""
            elif plan is not None and self.page is not None:
                self._send_progress(self.page)
        except Exception as error:
            if not isinstance(error, ServerError):
                logger.exception("play %s cannot continue", self.id)
            self._request_end("failed", "The next episode could not start.")
        finally:
            self._is_choosing_environment = False
            if self._end_reason:  # The end was requested before the worker existed.
                self._spawn(self.worker.stop())
            if self._worker_end_reason:
                self._on_worker_end(self._worker_end_reason)

    # --- The end.

    def _request_end(self, why: str, message: str = "") -> None:
        if not self._end_reason:
            self._end_reason = why
            if message:
                self._send_error(why, message)
            self._spawn(self.worker.stop())

    @property
    def is_ending(self) -> bool:
        """True if the play ends or has ended."""
        return bool(self._end_reason) or self.is_over

    async def end(self, why: str = "closed") -> None:
        """Ends the play, and waits until its episodes are stored."""
        self._request_end(why)
        await self._has_ended.wait()

    def is_expired(self, now: float, limits: Limits) -> bool:
        """True if the play ended long ago, so that no page needs its outcome any more."""
        return self.is_over and now - self._end_time > limits.until_end


@dataclasses.dataclass(eq=False)
class Plays:
    """All plays of a server.

    Attributes:
      directory: The directory of the logs of episodes.
      save: See `Save`.
      create_worker: Creates a worker, see `Worker`.
      limits: The limits of plays.
    """

    directory: str
    save: Save
    create_worker: WorkerFactory
    limits: Limits = dataclasses.field(default_factory=Limits)

    def __post_init__(self) -> None:
        self._plays: dict[str, Play] = {}
        # The locks of people; unused locks are dropped.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._start_buckets = Buckets(self.limits.starts, self.limits.starts_per_minute / 60)

    def find(self, play_id: str, person: Person) -> Play | None:
        """Returns a play of a person; an ended play is returned for some time."""
        play = self._plays.get(play_id)
        return play if play is not None and play.person.id == person.id else None

    def current_play(self, person: Person) -> Play | None:
        """Returns the running play of a person."""
        plays = (play for play in self._plays.values() if play.person.id == person.id)
        return next((play for play in plays if not play.is_over), None)

    def lock(self, person: Person) -> asyncio.Lock:
        """Returns the lock that serializes the requests of a person."""
        return self._locks.setdefault(person.id, asyncio.Lock())

    def check_capacity(self, person: Person) -> None:
        """Raises `TooManyError` or `ServiceUnavailableError` if a person cannot play now."""
        if self._start_buckets.take(person.id):
            raise TooManyError("Too many starts. Wait a few seconds, then try again.")
        running = [p for p in self._plays.values() if not p.is_over and p.person.id != person.id]
        if len(running) >= self.limits.players:
            raise ServiceUnavailableError(
                f"{self.limits.players} people are playing, the maximum. Try again later.",
                code="full",
            )

    async def start(
        self, person: Person, study: Study, choose: Choose, *, agent_id: str, is_chosen: bool
    ) -> Play:
        """Starts a play; an earlier play of the same person ends.

        Args:
          person: The player.
          study: The study.
          choose: See `Choose`.
          agent_id: The pseudonym of the person in the data.
          is_chosen: Whether the person has chosen the environment.

        Raises:
          ServerError: No environment is left, or the worker cannot be started.
        """
        plan = await choose()
        while (earlier_play := self.current_play(person)) is not None:
            await earlier_play.end("replaced")
        start = {
            "op": "start",
            "directory": self.directory,
            "agent_id": agent_id,
            "study_id": study.id,
            "expiry": {"idle": self.limits.until_idle, "paused": self.limits.until_expired},
        }
        play = Play(person, study, choose, self.save, self.create_worker, start, is_chosen)
        await play.start(plan)
        self._plays[play.id] = play
        return play

    async def serve(self, play: Play | None, websocket: WebSocket) -> None:
        """Serves the page of a play until it disconnects.

        Args:
          play: The play; None if it does not exist, or has ended long ago.
          websocket: The connection, not accepted yet.
        """
        await websocket.accept()
        page = Page(websocket)
        try:
            async with asyncio.timeout(self.limits.until_hello):
                hello = messages.decode(await websocket.receive_text())
            if not isinstance(hello, messages.Hello) or hello.protocol != messages.PROTOCOL:
                raise BadRequestError("expected hello as the first message", code="message")
        except WebSocketDisconnect:
            return
        except (TimeoutError, KeyError, BadRequestError):
            await websocket.close(_CLOSE_POLICY_VIOLATION)
            return
        if play is None:
            page.bye("expired")
            await page.send()
            return
        play.attach(page)
        sender = asyncio.create_task(page.send())
        listener = asyncio.create_task(self._listen(play, page, websocket))
        try:
            await asyncio.wait([sender, listener], return_when=asyncio.FIRST_COMPLETED)
        finally:
            play.detach(page)
            for task in (sender, listener):
                task.cancel()
            await asyncio.wait([sender, listener])
            if websocket.client_state is not WebSocketState.DISCONNECTED:
                with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
                    await websocket.close(_CLOSE_POLICY_VIOLATION)

    async def _listen(self, play: Play, page: Page, websocket: WebSocket) -> None:
        limits = self.limits
        bucket = Bucket(2 * limits.messages_per_second, limits.messages_per_second)
        num_invalid = 0
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            # Delays a page that sends too many messages.
            while seconds := bucket.take():
                await asyncio.sleep(seconds)
            try:
                page_message = messages.decode(message.get("text") or "")
            except BadRequestError as error:
                num_invalid += 1
                if num_invalid > limits.max_invalid_messages:
                    return
                text = str(error)
                page.queue({"op": "error", "code": "message", "message": text, "fatal": False})
                continue
            if play.page is page:
                play.handle_message(page_message)

    async def run(self) -> None:
        """Pauses or ends inactive plays in regular intervals, until it is cancelled."""
        while True:
            await asyncio.sleep(min(0.5, self.limits.until_pause / 4))
            now = asyncio.get_running_loop().time()
            for play in list(self._plays.values()):
                if play.is_expired(now, self.limits):
                    del self._plays[play.id]
                elif not play.is_over:
                    play.tick(now, self.limits)

    async def end_plays(self, *, person: str = "", study: str = "") -> None:
        """Ends the plays of a disabled person or of a deleted study."""
        for play in list(self._plays.values()):
            if play.person.id == person or play.study.id == study:
                await play.end()

    async def end_all(self) -> None:
        """Ends all plays; their episodes are stored as abandoned."""
        await asyncio.gather(*(play.end() for play in self._plays.values()))
