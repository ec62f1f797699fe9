"""The client for OpenAI-compatible endpoints: text and images in, a validated reply out."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self, Unpack

import msgspec
from msgspec import Meta

from prill.errors import (
    ContextTooLongError,
    EndpointError,
    PrillError,
    RefusalError,
    TransportError,
    TruncatedError,
    UnparsableError,
)
from prill.models.calls import (
    UNKNOWN_CODE,
    Call,
    ImageFile,
    Turn,
    build_turns,
    is_transcribed,
    note,
)
from prill.models.in_flight import InFlight
from prill.models.ledger import Ledger, Price, find_price
from prill.models.options import (
    AttemptTimeoutOption,
    BudgetOption,
    CacheOption,
    ConcurrencyOption,
    ImageDetail,
    ImageFormat,
    MaxPixelsOption,
    ReasoningEffort,
    RepetitionPenalty,
    RetriesOption,
    Temperature,
    TopK,
    TopP,
)
from prill.models.prompts import call_code, content_hash, estimate_tokens
from prill.models.replies import (
    ChatMessage,
    Completion,
    GivenReply,
    TokenCounts,
    WordFormat,
    excerpt,
    repeats,
)
from prill.models.request import (
    INTERNAL_ERROR,
    PIXELS_PER_TOKEN,
    TOO_LARGE,
    EncodedImage,
    EndpointCapabilities,
    ImageEncoder,
    RequestLimits,
    chat_messages,
    encode_body,
    estimate_size,
    lacks_vision,
    least_reply,
    listed_window,
    rejection,
    sampling_options,
    too_many_images,
    with_detail,
    without_system,
    worded,
)
from prill.models.transport import Endpoint, RejectedError, RequestStats
from prill.protocols import Form, Image, Limits, Message, Reply, SamplingLimits
from prill.types import Usage

# A 1280x720 page is sent unscaled; a 1080x2400 phone screen is scaled to about 820x1825.
PIXEL_BUDGET = 1_500_000
_CACHE_FORMAT = "1"  # increment it when the parsing of replies changes


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint.

    It can be used from several event loops, also concurrently. Endpoints other than OpenAI's may
    work without a key. Rate-limit errors reduce the concurrency for a while. All attempts
    of one call together may take three times `timeout`, at least 600 seconds. `cache` stores
    answers by model, endpoint, prompt and content. (Calls are made at temperature 0 unless an
    option says otherwise.) Subclasses with a fixed price per call, whatever the model's name, set
    `PRICE`.

    Args:
        model: The model's name at the endpoint.
    """

    PRICE: ClassVar[Price | None] = None

    def __init__(
        self,
        model: str,
        *,
        base_url: Annotated[
            str | None,
            Meta(description="URL of the endpoint (default $OPENAI_BASE_URL, else OpenAI)."),
        ] = None,
        api_key_env: Annotated[
            str, Meta(description="Environment variable with the API key.")
        ] = "OPENAI_API_KEY",
        concurrency: ConcurrencyOption = 16,
        timeout: AttemptTimeoutOption = 120.0,
        retries: RetriesOption = 5,
        max_pixels: MaxPixelsOption = PIXEL_BUDGET,
        prices: Annotated[
            str | None,
            Meta(description="Price table (TOML) that takes precedence over the built-in one."),
        ] = None,
        budget_usd: BudgetOption = None,
        reasoning_effort: Annotated[
            ReasoningEffort | None,
            Meta(description="Reasoning effort of a reasoning model (default: the endpoint's)."),
        ] = None,
        image_detail: Annotated[
            ImageDetail | None,
            Meta(
                description="Level of detail at which the model processes images (default: the "
                "endpoint's)."
            ),
        ] = None,
        image_format: ImageFormat = None,
        temperature: Temperature = None,
        top_p: TopP = None,
        top_k: TopK = None,
        repetition_penalty: RepetitionPenalty = None,
        cache: CacheOption = None,
    ) -> None:
        self.model = model
        self.reasoning_effort, self.image_detail = reasoning_effort, image_detail
        self.endpoint = Endpoint(base_url, api_key_env, concurrency, timeout, retries)
        self.ledger = Ledger(self.PRICE or find_price(model, prices), budget_usd, name=model)
        self.cache = cache
        self.capabilities = EndpointCapabilities()
        self._encode = ImageEncoder(max_pixels, image_format)
        self._in_flight = InFlight()
        self._has_seen = self._listed = False
        self._sampling = sampling_options(temperature, top_p, top_k, repetition_penalty)

    @property
    def name(self) -> str:
        """Returns the model's name, with sampling settings that differ from temperature 0."""
        ways = [f"reasoning effort {self.reasoning_effort}"] if self.reasoning_effort else []
        ways += [f"image detail {self.image_detail}"] if self.image_detail else []
        ways += [f"image format {self._encode.image_format}"] if self._encode.image_format else []
        return self.model + self._sampling.suffix + (f" ({', '.join(ways)})" if ways else "")

    @property
    def concurrency(self) -> int:
        """Returns the maximum number of concurrent calls."""
        return self.endpoint.concurrency

    @property
    def max_pixels(self) -> int:
        """Returns the number of pixels that larger images are scaled down to, which bounds their
        tokens.
        """
        return self._encode.max_pixels

    @property
    def unsupported_params(self) -> Sequence[str]:
        """Returns one sentence for each parameter that is omitted because the endpoint rejected
        it.
        """
        refused = {
            "reasoning effort": self.reasoning_effort
            if not self.capabilities.reasoning_effort
            else None,
            "image detail": self.image_detail if not self.capabilities.detail else None,
            "temperature": self._sampling.temperature
            if not self.capabilities.temperature
            else None,
            **{
                name: value
                for name, value in self._sampling.limits.items()
                if name not in self.capabilities.sampling_limits
            },
        }
        return [
            f"{self.model} does not accept {what} = {value!r}; it was left out"
            for what, value in refused.items()
            if value
        ]

    async def why_unreachable(self) -> str:
        """Returns why the endpoint cannot be reached; empty if it answers, even with an error."""
        return await self.endpoint.why_unreachable()

    async def limits(self) -> Limits:
        """Returns the limits of one request, from the endpoint's model list and its errors so
        far.
        """
        if not self._listed:
            await self._in_flight.once("/models", self._read_list)
        return self.capabilities.limits

    async def _read_list(self) -> None:
        if not self._listed:
            window = listed_window(await self.endpoint.models(), self.model)
            self.capabilities.learn_sizes(RequestLimits(window=window), None)
            self._listed = True

    def sampled(self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]) -> Self:
        """Returns the same model at a sampling temperature; budget, connections and cache are
        shared.

        The options `top_p`, `top_k` and `repetition_penalty` apply unless `limits` overrides them.
        Parameters that the endpoint rejects by name are no longer sent.
        """
        other = copy.copy(self)
        other._sampling = self._sampling.drawn(temperature, seed, limits)
        return other

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Requests one answer and parses it with `form`; see `prill.protocols.LanguageModel`.

        The temperature is that of the options, unless the model is `sampled`. If the answer
        contains none of the offered verdicts, the request is repeated once. The cost is in
        `reply.usage`; inside `prill.models.ledger.metered`, it is also counted if this method
        raises. A cached answer costs nothing.
        """
        if isinstance(form, GivenReply) and not form.tokens:
            raise EndpointError(
                f"{self.name} does not return the log-probabilities of a given text; use a model "
                "in this process, such as embedded or local:embedded"
            )
        paths = sorted(
            {part.path for message in messages for part in message.parts if isinstance(part, Image)}
        )
        images = {path: await self._encoded(path) for path in paths}
        cache = self.cache
        if cache is None:
            return await self._answer(messages, images, form, max_tokens)
        key = self._key(messages, images, form, max_tokens, prompt)
        requested = False

        async def ask() -> Reply:
            nonlocal requested
            requested = True
            reply = await self._answer(messages, images, form, max_tokens)
            cache.put(key, msgspec.json.encode(replace(reply, usage=Usage())))
            return reply

        cached = cache.get(key, partial(msgspec.json.decode, type=Reply))
        reply = await self._in_flight.once(key, ask) if cached is None else cached
        if not requested and is_transcribed():
            request, _ = self._request(messages, form, max_tokens, UNKNOWN_CODE)
            note(
                Call(
                    model=self.name,
                    messages=_turns(request, images),
                    reply=reply.text,
                    attempts=0,
                    cached=True,
                )
            )
        return reply

    async def _encoded(self, path: str) -> EncodedImage:
        if (image := self._encode.at_once(path)) is not None:
            return image
        return await asyncio.to_thread(self._encode, path)

    async def _answer(
        self,
        messages: Sequence[Message],
        images: Mapping[str, EncodedImage],
        form: Form | None,
        max_tokens: int,
    ) -> Reply:
        total = Usage()
        for last_try in (False, True):
            completion, usage = await self._ask(messages, images, form, max_tokens)
            total += usage
            message = completion.choices[0].message
            text = message.answer or ""
            try:
                if not text.strip():
                    raise UnparsableError(_describe_empty_reply(message))
                fields = form.parse(text) if form else {}
            except UnparsableError:
                if last_try:
                    raise
            else:
                break
        return Reply(text, total, fields, completion.tokens)

    async def _ask(
        self,
        messages: Sequence[Message],
        images: Mapping[str, EncodedImage],
        form: Form | None,
        max_tokens: int,
    ) -> tuple[Completion, Usage]:
        """Requests one complete answer, in a request format that the endpoint accepts.

        A truncated answer is requested again with twice the tokens, unless it repeats itself. If it
        contained only reasoning, the limit for reasoning is raised for all later calls too.
        """
        usage, doubled, tokens = Usage(), False, None
        while True:
            completion, limit, cost = await self._send(messages, images, form, max_tokens, tokens)
            self._has_seen = self._has_seen or bool(images)
            choice = completion.choices[0]
            usage += cost
            text = choice.message.answer or ""
            if choice.message.refusal or choice.finish_reason == "content_filter":
                raise RefusalError(f"the model declined: {excerpt(choice.message.refusal or text)}")
            if choice.finish_reason != "length" or _is_word(form, text):
                return completion, usage
            tokens = completion.usage.prompt_tokens if completion.usage else None
            if not text.strip():
                thought = f"the model used all {limit} tokens for reasoning and did not answer"
                if not self.capabilities.think_longer(limit - max_tokens):
                    raise TruncatedError(thought)
                if self.capabilities.room_for_reply(max_tokens, messages, tokens) <= limit:
                    raise ContextTooLongError(
                        f"{thought}; its context window has no room for a longer reply"
                    )
                continue
            cut = f"the reply was cut at {limit} tokens"
            if repeats(text):  # with more tokens, the model would only go on
                raise TruncatedError(f"{cut}, as it repeats itself: {excerpt(text)}", text)
            if (
                doubled
                or self.capabilities.room_for_reply(2 * max_tokens, messages, tokens) <= limit
            ):
                raise TruncatedError(f"{cut}: {excerpt(text)}", text)
            max_tokens, doubled = 2 * max_tokens, True

    async def _send(
        self,
        messages: Sequence[Message],
        images: Mapping[str, EncodedImage],
        form: Form | None,
        max_tokens: int,
        tokens: int | None,
    ) -> tuple[Completion, int, Usage]:
        """Sends a request in a format that the endpoint accepts, and records it for the transcript.

        Returns the answer, the token limit that was sent, and the cost. Failures are recorded too.
        `tokens`: the number of tokens in the request, if known.
        """
        code = call_code(
            part for message in messages for part in message.parts if isinstance(part, str)
        )
        request, fields = tuple(messages), dict[str, Any]()
        stats = RequestStats()

        def prepare() -> None:
            nonlocal request, fields
            request, fields = self._request(messages, form, max_tokens, code, tokens)

        def most() -> tuple[int, int, int]:
            prepare()
            return *estimate_size(request), _limit(fields)

        booking = self.ledger.call(most)

        def body() -> bytes:
            prepare()
            return encode_body(
                {"model": self.model, "messages": chat_messages(request, images), **fields}
            )

        try:
            while True:
                try:
                    completion = await self.endpoint.send(body, booking, stats)
                    break
                except RejectedError as refusal:
                    limits = RequestLimits.from_error(refusal.message)
                    if self._smaller_reply(refusal, limits, fields, request):
                        tokens = limits.tokens
                    elif not self._another_form(refusal, fields, request):
                        if refusal.fatal is not None:
                            raise refusal.fatal from None
                        shown = refusal.shown + _jpeg_hint(refusal.status, images)
                        raise rejection(
                            refusal.status, refusal.message, bool(images), shown
                        ) from None
        except PrillError as error:
            if stats.attempts:
                self._note(request, images, stats, error=str(error))
            raise
        choice, counts = completion.choices[0], _counts(completion, messages, images)
        tokens_used = counts.prompt_tokens, counts.reply_tokens
        cost = booking.settle(*tokens_used, len(images), counts.cached_tokens)
        self._note(
            request,
            images,
            stats,
            reply=choice.message.answer,
            reasoning=choice.message.thoughts,
            finish_reason=choice.finish_reason,
            prompt_tokens=counts.prompt_tokens,
            completion_tokens=counts.reply_tokens,
            error=choice.message.refusal,
        )
        return completion, _limit(fields), cost

    def _request(
        self,
        messages: Sequence[Message],
        form: Form | None,
        max_tokens: int,
        code: str,
        tokens: int | None = None,
    ) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Returns the messages as they will be sent, and the other fields of the request."""
        fields = self.capabilities.fields(form, max_tokens, self._sampling, self.reasoning_effort)
        ending = form.instructions(as_json="response_format" in fields) if form else ""
        request = with_detail(
            worded(messages, ending, code), self.image_detail, accepted=self.capabilities.detail
        )
        fields[self.capabilities.token_limit] = self.capabilities.room_for_reply(
            max_tokens, request, tokens
        )
        return request if self.capabilities.system else without_system(request), fields

    def _note(
        self,
        request: Sequence[Message],
        images: Mapping[str, EncodedImage],
        stats: RequestStats,
        **answer: Any,
    ) -> None:
        if is_transcribed():
            turns, seconds = _turns(request, images), round(stats.seconds, 4)
            note(
                Call(
                    model=self.name,
                    messages=turns,
                    seconds=seconds,
                    attempts=stats.attempts,
                    **answer,
                )
            )

    def _smaller_reply(
        self,
        refusal: RejectedError,
        limits: RequestLimits,
        fields: Mapping[str, Any],
        request: Sequence[Message],
    ) -> bool:
        """Stores the limits from an error; True if the request fits with a smaller reply limit."""
        if limits.reply and limits.reply < _limit(fields):
            self.capabilities.reply = limits.reply
            return True
        images = estimate_size(request)[1]
        if not isinstance(
            rejection(refusal.status, refusal.message, bool(images)), ContextTooLongError
        ):
            return False
        too_many = images > 1 and (too_many_images(refusal.message) or refusal.status == TOO_LARGE)
        self.capabilities.learn_sizes(
            limits, min(limits.images or images, images - 1) if too_many else None
        )
        if limits.tokens is None or self.capabilities.window is None:
            return False
        left = self.capabilities.window - limits.tokens
        return least_reply(self.capabilities.limits, _limit(fields)) <= left < _limit(fields)

    def _another_form(
        self, refusal: RejectedError, fields: dict[str, Any], request: Sequence[Message]
    ) -> bool:
        """Adapts the capabilities to an error; True if the request should be sent in another
        format.

        Raises EndpointError.
        """
        pictures = [
            part for message in request for part in message.parts if isinstance(part, Image)
        ]
        has_images = bool(pictures)
        # Once the endpoint has accepted an image, such an error is about one image, not about the
        # model.
        if has_images and not self._has_seen and lacks_vision(refusal.message):
            raise EndpointError(
                f"model {self.model} does not accept images ({refusal.shown}); use a judge "
                "that reads text, or a vision model"
            )
        if isinstance(rejection(refusal.status, refusal.message, has_images), ContextTooLongError):
            return False
        details, roles = (part.detail for part in pictures), (message.role for message in request)
        if self.capabilities.adapt(
            refusal.message, fields, detail=any(details), system="system" in roles
        ):
            return True
        if refusal.fatal is not None:
            return False
        if self.endpoint.answered or not isinstance(
            rejection(refusal.status, refusal.message, has_images), TransportError
        ):
            return False
        # No request has succeeded yet, and the error gives no reason: some servers fail on an
        # unknown response format.
        if "response_format" in fields:
            self.capabilities.downgrade(fields)
            return True
        self.capabilities.structured = "json_schema"  # the response format was not the cause
        return False

    def _key(
        self,
        messages: Sequence[Message],
        images: Mapping[str, EncodedImage],
        form: Form | None,
        max_tokens: int,
        prompt: str,
    ) -> str:
        parts = [
            f"{message.role} text {part}"
            if isinstance(part, str)
            else (
                f"{message.role} image{part.detail or ''} "
                f"{hashlib.sha256(images[part.path].url).hexdigest()}"
            )
            for message in messages
            for part in message.parts
        ]
        settings = (
            f"{_CACHE_FORMAT} {self.name} {self.endpoint.origin} {prompt} {max_tokens} {form}"
        )
        return content_hash(settings, *parts)


def _jpeg_hint(status: int, images: Mapping[str, EncodedImage]) -> str:
    """Returns advice for a server error on images of which some are not JPEG."""
    if status != INTERNAL_ERROR or all(
        image.url.startswith(b"data:image/jpeg") for image in images.values()
    ):
        return ""
    return (
        "; some servers, for example those of CogAgent's authors, only read JPEG: set "
        "image_format=jpeg"
    )


def _limit(fields: Mapping[str, Any]) -> int:
    """Returns the token limit of a request."""
    return int(fields.get("max_tokens") or fields["max_completion_tokens"])


def _is_word(form: Form | None, text: str) -> bool:
    """Returns whether the reply contains the requested single word; then it does not matter if it
    was truncated.
    """
    if not isinstance(form, WordFormat):
        return False
    try:
        return bool(form.parse(text))
    except UnparsableError:
        return False


def _describe_empty_reply(message: ChatMessage) -> str:
    """Returns why a reply contains no answer."""
    if not message.thoughts:
        return "the reply is empty"
    return (
        "the reply contains only the model's reasoning and no answer "
        f"({excerpt(message.thoughts)}); if the server classifies the answer as reasoning, "
        "start it without its reasoning parser, or lower the reasoning effort"
    )


def _counts(
    completion: Completion, messages: Sequence[Message], images: Mapping[str, EncodedImage]
) -> TokenCounts:
    """Returns the endpoint's token counts, or an estimate from text and images."""
    if completion.usage is not None:
        return completion.usage
    text = "".join(part for message in messages for part in message.parts if isinstance(part, str))
    pixels = sum(image.width * image.height for image in images.values())
    message = completion.choices[0].message
    return TokenCounts(
        estimate_tokens(text) + pixels // PIXELS_PER_TOKEN,
        estimate_tokens((message.answer or "") + (message.thoughts or "")),
    )


def _turns(request: Sequence[Message], images: Mapping[str, EncodedImage]) -> tuple[Turn, ...]:
    return build_turns(
        request, {path: ImageFile(path, image.sha256, image.size) for path, image in images.items()}
    )
