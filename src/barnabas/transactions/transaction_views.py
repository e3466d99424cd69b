"""DescribeTransactions and ListTransactions: transactions as an administrator sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions.transaction import TransactionState

if TYPE_CHECKING:
    from barnabas.transactions.transaction import Transaction

_BY_TITLE: Final = {state.title: state for state in TransactionState}


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object: ...


class Filters(NamedTuple):
    """Which transactions a ListTransactions request asks for. Parsed once, used for each shard."""

    states: frozenset[TransactionState] | None
    """None: all. A filter with unknown names only matches nothing, rather than everything."""
    producer_ids: frozenset[int]
    """Empty: all."""
    duration_ms: int
    """Only those that have been open for longer than this; negative: all."""
    pattern: Pattern | None

    @classmethod
    def of(cls, request: m.ListTransactionsRequest) -> Filters:
        """Raises KafkaError for a pattern that is not a regular expression."""
        names = request.state_filters
        return cls(
            states=frozenset(_BY_TITLE[name] for name in names if name in _BY_TITLE) if names else None,
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            pattern=_compile(request.transactional_id_pattern) if request.transactional_id_pattern else None,
        )

    def match(self, transaction: Transaction, now_ms: int) -> bool:
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states is not None and transaction.state not in self.states:
            return False
        if self.duration_ms >= 0 and now_ms - transaction.started_ms <= self.duration_ms:
            return False
        return self.pattern is None or self.pattern.fullmatch(transaction.transactional_id) is not None


def unknown_states(request: m.ListTransactionsRequest) -> list[str]:
    """The state filters that name no state."""
    return [name for name in dict.fromkeys(request.state_filters) if name not in _BY_TITLE]


def listed(transaction: Transaction) -> m.ListTransactionsResponse.TransactionState:
    return m.ListTransactionsResponse.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.title,
    )


def described(
    transactional_id: str, transaction: Transaction | None
) -> m.DescribeTransactionsResponse.TransactionState:
    if transaction is None:
        error = Error.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Error.INVALID_REQUEST
        return m.DescribeTransactionsResponse.TransactionState(error_code=error, transactional_id=transactional_id)
    topic_data = m.DescribeTransactionsResponse.TopicData
    return m.DescribeTransactionsResponse.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[topic_data(topic=topic, partitions=partitions) for topic, partitions in transaction.by_topic()],
    )


def _compile(pattern: str) -> Pattern:
    import re2  # imported on first use: most nodes never see a pattern

    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        message = f"Transaction ID pattern `{pattern}` is not a valid regular expression: {reason}."
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, message) from error
    return compiled
