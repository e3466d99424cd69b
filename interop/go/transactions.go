package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newProducer(broker, topic string, options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	return newClient(broker, options...)
}

// transact writes a value in a transaction of its own and ends it.
func transact(ctx context.Context, client *kgo.Client, value string, end kgo.TransactionEndTry) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, end)
}

// commitAndAbort writes transactions that are committed and one that is aborted, and reads them in both manners.
func commitAndAbort(ctx context.Context, broker string, args arguments) (any, error) {
	if err := createTopic(ctx, broker, args.Topic, 1); err != nil {
		return nil, err
	}
	client, err := newProducer(broker, args.Topic)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	first := transact(ctx, client, "first", kgo.TryCommit)
	second := transact(ctx, client, "aborted", kgo.TryAbort)
	third := transact(ctx, client, "last", kgo.TryCommit)
	if err := errors.Join(first, second, third); err != nil {
		return nil, err
	}
	committed, err := readValues(ctx, broker, args.Topic, 2, kgo.ReadCommitted())
	if err != nil {
		return nil, err
	}
	all, err := readValues(ctx, broker, args.Topic, 3, kgo.ReadUncommitted())
	return map[string]any{"committed": committed, "all": all}, err
}

// groupSession reads, writes and commits its place in one transaction, and aborts every other time. Where the client
// gives up, because it cannot reach a coordinator that was killed, a new session goes on from the place of the group.
func groupSession(ctx context.Context, broker string, args arguments) (any, error) {
	input, output := args.Topic+"-input", args.Topic+"-output"
	for _, topic := range []string{input, output} {
		if err := createTopic(ctx, broker, topic, 1); err != nil {
			return nil, err
		}
	}
	if err := fillInput(ctx, broker, input, args.Records); err != nil {
		return nil, err
	}
	session, err := newSession(broker, args.Group, input, output)
	if err != nil {
		return nil, err
	}
	defer func() { session.Close() }()
	ends := []bool{}
	for committed := 0; committed < args.Records; {
		count, ended, err := sessionTurn(ctx, session, args.Batch, len(ends)%2 == 1)
		ends = append(ends, ended && err == nil)
		if err == nil && ended {
			committed += count
		}
		if err == nil {
			continue
		}
		fmt.Fprintln(os.Stderr, "a new session after:", err)
		session.Close()
		if session, err = newSession(broker, args.Group, input, output); err != nil {
			return nil, err
		}
		taken := func() (bool, error) { return true, takeOver(ctx, session.Client()) }
		if _, err := retried(ctx, taken); err != nil {
			return nil, err
		}
		place, err := retried(ctx, func() (int64, error) { return groupOffset(ctx, broker, args.Group, input) })
		if err != nil {
			return nil, err
		}
		committed = int(max(place, 0))
	}
	written, err := retried(ctx, func() ([]string, error) {
		return readValues(ctx, broker, output, args.Records, kgo.ReadCommitted())
	})
	if err != nil {
		return nil, err
	}
	offset, err := retried(ctx, func() (int64, error) { return groupOffset(ctx, broker, args.Group, input) })
	sort.Strings(written)
	return map[string]any{"ends": ends, "output": written, "offset": offset}, err
}

func newSession(broker, group, input, output string) (*kgo.GroupTransactSession, error) {
	return kgo.NewGroupTransactSession(
		kgo.SeedBrokers(seeds(broker)...),
		kgo.TransactionalID(group),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DefaultProduceTopic(output),
		// A member whose coordinator was killed cannot leave, and the next one waits for it no longer than this.
		kgo.SessionTimeout(6*time.Second),
		kgo.RequireStableFetchOffsets())
}

// sessionTurn copies some records in one transaction, and tells how many and whether it was committed.
func sessionTurn(ctx context.Context, session *kgo.GroupTransactSession, batch int, commits bool) (int, bool, error) {
	fetches := session.PollRecords(ctx, batch)
	if err := fetches.Err(); err != nil {
		var left *kgo.ErrGroupSession
		if errors.As(err, &left) {
			return 0, false, nil // without a coordinator it is no member for a while, and joins again by itself
		}
		return 0, false, err
	}
	if err := session.Begin(); err != nil {
		return 0, false, err
	}
	for _, record := range fetches.Records() {
		if err := session.ProduceSync(ctx, kgo.StringRecord(string(record.Value))).FirstErr(); err != nil {
			return 0, false, err
		}
	}
	ended, err := session.End(ctx, kgo.TransactionEndTry(commits))
	return fetches.NumRecords(), ended, err
}

// zombie is a producer whose transactional id another one takes over.
func zombie(ctx context.Context, broker string, args arguments) (any, error) {
	if err := createTopic(ctx, broker, args.Topic, 1); err != nil {
		return nil, err
	}
	old, err := newProducer(broker, args.Topic)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	if err := old.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := old.ProduceSync(ctx, kgo.StringRecord("zombie")).FirstErr(); err != nil {
		return nil, err
	}
	successor, err := newProducer(broker, args.Topic)
	if err != nil {
		return nil, err
	}
	defer successor.Close()
	if err := takeOver(ctx, successor); err != nil {
		return nil, err
	}
	if err := transact(ctx, successor, "successor", kgo.TryCommit); err != nil {
		return nil, err
	}
	late := old.ProduceSync(ctx, kgo.StringRecord("late")).FirstErr()
	committed, err := readValues(ctx, broker, args.Topic, 1, kgo.ReadCommitted())
	return map[string]any{
		"fenced":    errors.Is(late, kerr.InvalidProducerEpoch) || errors.Is(late, kerr.ProducerFenced),
		"committed": committed,
	}, err
}

// takeOver asks for the producer id until the transaction that was open in its name is aborted.
func takeOver(ctx context.Context, client *kgo.Client) error {
	return until(ctx, "the open transaction is aborted", func() (bool, error) {
		_, _, err := client.ProducerID(ctx)
		if errors.Is(err, kerr.ConcurrentTransactions) {
			return false, nil
		}
		return err == nil, err
	})
}

func fillInput(ctx context.Context, broker, topic string, count int) error {
	client, err := newClient(broker, kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range count {
		records = append(records, kgo.StringRecord(fmt.Sprintf("value-%02d", i)))
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// readValues reads this many records from the start, and whatever came with the last of them.
func readValues(ctx context.Context, broker, topic string, count int, isolation kgo.IsolationLevel) ([]string, error) {
	client, err := newClient(broker,
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(isolation))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records, err := poll(ctx, client, count)
	var values []string
	for _, record := range records {
		values = append(values, string(record.Value))
	}
	return values, err
}

func groupOffset(ctx context.Context, broker, group, topic string) (int64, error) {
	client, err := newClient(broker)
	if err != nil {
		return 0, err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	found, _ := offsets.Lookup(topic, 0)
	return found.At, nil
}
