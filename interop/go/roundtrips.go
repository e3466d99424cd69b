package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	roundTripPartitions = 3
	roundTripRecords    = 300
	steadyBatch         = 6
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type place struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Header    string `json:"header"`
}

// roundTrip writes records with keys and headers, compressed by one codec, and reads them back.
func roundTrip(ctx context.Context, broker string, args arguments) (any, error) {
	if err := createTopic(ctx, broker, args.Topic, roundTripPartitions); err != nil {
		return nil, err
	}
	client, err := newClient(broker,
		kgo.DefaultProduceTopic(args.Topic),
		kgo.ProducerBatchCompression(codecs[args.Codec]),
		kgo.ConsumeTopics(args.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range roundTripRecords {
		records = append(records, &kgo.Record{
			Key:     fmt.Appendf(nil, "key-%d", i%7),
			Value:   []byte(fmt.Sprintf("välue-%d", i) + strings.Repeat("x", i)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}},
		})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	received, err := poll(ctx, client, len(records))
	if err != nil {
		return nil, err
	}
	return map[string]any{"sent": places(records), "received": places(received)}, nil
}

// steadyWrites sends records in small batches to all partitions in turn, each batch when the one before is acknowledged.
func steadyWrites(ctx context.Context, broker string, args arguments) (any, error) {
	if err := createTopic(ctx, broker, args.Topic, roundTripPartitions); err != nil {
		return nil, err
	}
	client, err := newClient(broker, kgo.DefaultProduceTopic(args.Topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for sent := 0; sent < args.Records; {
		var records []*kgo.Record
		for ; len(records) < steadyBatch && sent < args.Records; sent++ {
			record := kgo.StringRecord(fmt.Sprintf("value-%d", sent))
			record.Partition = int32(sent % roundTripPartitions)
			records = append(records, record)
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return nil, err
		}
	}
	return args.Records, nil
}

// poll reads this many records.
func poll(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	var received []*kgo.Record
	for len(received) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(received), count, err)
		}
		received = append(received, fetches.Records()...)
	}
	return received, nil
}

func places(records []*kgo.Record) []place {
	var all []place
	for _, each := range records {
		all = append(all, place{each.Partition, each.Offset, string(each.Key), string(each.Value), string(each.Headers[0].Value)})
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].Partition != all[j].Partition {
			return all[i].Partition < all[j].Partition
		}
		return all[i].Offset < all[j].Offset
	})
	return all
}

// lifeOfATopic makes, sees, changes and deletes a topic with kadm.
func lifeOfATopic(ctx context.Context, broker string, args arguments) (any, error) {
	client, err := newClient(broker)
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	topic := args.Topic
	if err := createTopic(ctx, broker, topic, 2); err != nil {
		return nil, err
	}
	_, again := admin.CreateTopic(ctx, 2, 1, nil, topic)
	hour := "3600000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &hour}}, topic)
	if err := errors.Join(err, altered[0].Err); err != nil {
		return nil, err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	retention := ""
	for _, each := range configs[0].Configs {
		if each.Key == "retention.ms" {
			retention = each.MaybeValue()
		}
	}
	if _, err := admin.UpdatePartitions(ctx, 3, topic); err != nil {
		return nil, err
	}
	listed, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	partitions := len(listed[topic].Partitions)
	if err := deleteTopic(ctx, admin, topic); err != nil {
		return nil, err
	}
	return map[string]any{
		"created_again": errors.Is(again, kerr.TopicAlreadyExists),
		"retention":     retention,
		"partitions":    partitions,
	}, nil
}

func deleteTopic(ctx context.Context, admin *kadm.Client, topic string) error {
	deleted, err := admin.DeleteTopics(ctx, topic)
	if err := errors.Join(err, deleted.Error()); err != nil {
		return err
	}
	return until(ctx, "the topic is gone", func() (bool, error) {
		topics, err := admin.ListTopics(ctx)
		return err == nil && !topics.Has(topic), err
	})
}
