package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupPartitions = 4

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// member polls until it leaves, commits what it got, and tells what it owns.
type member struct {
	client   *kgo.Client
	left     chan struct{}
	mutex    sync.Mutex
	owned    map[int32]bool
	revoked  []int32
	received []string
}

func join(broker string, args arguments) (*member, error) {
	joined := &member{left: make(chan struct{}), owned: map[int32]bool{}}
	client, err := newClient(broker,
		kgo.ConsumerGroup(args.Group),
		kgo.ConsumeTopics(args.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancers[args.Balancer]),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			joined.mutex.Lock()
			defer joined.mutex.Unlock()
			for _, partition := range assigned[args.Topic] {
				joined.owned[partition] = true
			}
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
			joined.mutex.Lock()
			defer joined.mutex.Unlock()
			for _, partition := range revoked[args.Topic] {
				delete(joined.owned, partition)
				joined.revoked = append(joined.revoked, partition)
			}
		}))
	if err != nil {
		return nil, err
	}
	joined.client = client
	go joined.pollUntilLeaving()
	return joined, nil
}

func (m *member) pollUntilLeaving() {
	defer close(m.left)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.mutex.Lock()
		for _, record := range fetches.Records() {
			m.received = append(m.received, fmt.Sprintf("%d@%d", record.Partition, record.Offset))
		}
		m.mutex.Unlock()
		// A commit that a rebalance overtakes is made again with the next records, or when the member leaves.
		_ = m.client.CommitUncommittedOffsets(context.Background())
	}
}

func (m *member) leave() {
	m.client.Close()
	<-m.left
}

func (m *member) partitions() []int32 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	all := []int32{}
	for partition := range m.owned {
		all = append(all, partition)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all
}

func (m *member) records() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return append([]string{}, m.received...)
}

// shareAndHandOver has two members share a topic, then one of them read all of it.
func shareAndHandOver(ctx context.Context, broker string, args arguments) (any, error) {
	if err := createTopic(ctx, broker, args.Topic, groupPartitions); err != nil {
		return nil, err
	}
	first, err := join(broker, args)
	if err != nil {
		return nil, err
	}
	defer first.client.Close()
	err = until(ctx, "one member owns everything", func() (bool, error) { return len(first.partitions()) == groupPartitions, nil })
	if err != nil {
		return nil, err
	}
	second, err := join(broker, args)
	if err != nil {
		return nil, err
	}
	defer second.client.Close()
	err = until(ctx, "both own half", func() (bool, error) {
		half := groupPartitions / 2
		return len(first.partitions()) == half && len(second.partitions()) == half, nil
	})
	if err != nil {
		return nil, err
	}
	shared := [][]int32{first.partitions(), second.partitions()}
	if err := fill(ctx, broker, args.Topic, 0); err != nil {
		return nil, err
	}
	if err := awaitRecords(ctx, groupPartitions, first, second); err != nil {
		return nil, err
	}
	first.leave()
	err = until(ctx, "the other owns everything", func() (bool, error) { return len(second.partitions()) == groupPartitions, nil })
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, broker, args.Topic, 1); err != nil {
		return nil, err
	}
	if err := awaitRecords(ctx, 2*groupPartitions, first, second); err != nil {
		return nil, err
	}
	received := append(first.records(), second.records()...)
	sort.Strings(received)
	return map[string]any{"shared": shared, "revoked_from_second": len(second.revoked), "received": received}, nil
}

// fill writes one record to each partition.
func fill(ctx context.Context, broker, topic string, round int) error {
	client, err := newClient(broker, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	for partition := range int32(groupPartitions) {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "round %d", round)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func awaitRecords(ctx context.Context, count int, members ...*member) error {
	return until(ctx, fmt.Sprintf("%d records were received", count), func() (bool, error) {
		received := 0
		for _, each := range members {
			received += len(each.records())
		}
		return received >= count, nil
	})
}

// lag lists and describes a group that has read some of what there is, as kadm adds it up, then deletes it.
func lag(ctx context.Context, broker string, args arguments) (any, error) {
	if err := createTopic(ctx, broker, args.Topic, groupPartitions); err != nil {
		return nil, err
	}
	for round := range 3 {
		if err := fill(ctx, broker, args.Topic, round); err != nil {
			return nil, err
		}
	}
	client, err := newClient(broker)
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	var offsets kadm.Offsets
	for partition := range int32(groupPartitions) {
		offsets.AddOffset(args.Topic, partition, 1, -1)
	}
	committed, err := admin.CommitOffsets(ctx, args.Group, offsets)
	if err := errors.Join(err, committed.Error()); err != nil {
		return nil, err
	}
	listed, err := admin.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	lags, err := admin.Lag(ctx, args.Group)
	if err != nil {
		return nil, err
	}
	described := lags[args.Group]
	result := map[string]any{
		"listed":    listed[args.Group].State,
		"described": described.State,
		"lag":       described.Lag.Total(),
	}
	deleted, err := admin.DeleteGroup(ctx, args.Group)
	if err := errors.Join(err, deleted.Err); err != nil {
		return nil, err
	}
	listed, err = admin.ListGroups(ctx)
	result["listed_when_deleted"] = listed.Groups()
	return result, err
}
