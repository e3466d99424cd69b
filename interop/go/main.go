// Scenarios of franz-go. A line of JSON on standard input names one and its arguments; a line of JSON on standard
// output tells what it found out, or why it failed. The only argument is the bootstrap address.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const deadline = 90 * time.Second

// arguments of all scenarios; each uses some of them.
type arguments struct {
	Scenario string `json:"scenario"`
	Topic    string `json:"topic"`
	Group    string `json:"group"`
	Codec    string `json:"codec"`
	Balancer string `json:"balancer"`
	Records  int    `json:"records"`
	Batch    int    `json:"batch"`
}

type scenario func(ctx context.Context, broker string, args arguments) (any, error)

var scenarios = map[string]scenario{
	"round-trip":       roundTrip,
	"steady-writes":    steadyWrites,
	"topic":            lifeOfATopic,
	"group":            shareAndHandOver,
	"lag":              lag,
	"commit-and-abort": commitAndAbort,
	"group-session":    groupSession,
	"zombie":           zombie,
}

func main() {
	broker := os.Args[1]
	requests := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for requests.Scan() {
		if err := answers.Encode(answer(broker, requests.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func answer(broker string, request []byte) map[string]any {
	var args arguments
	if err := json.Unmarshal(request, &args); err != nil {
		return map[string]any{"error": err.Error()}
	}
	run, known := scenarios[args.Scenario]
	if !known {
		return map[string]any{"error": "no scenario is called " + args.Scenario}
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	result, err := run(ctx, broker, args)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"result": result}
}

// seeds are the brokers of a bootstrap address, which may name several. They are in no order: a client whose first
// seed is dead may give up before it tries another, and the next attempt must not begin with the same one.
func seeds(broker string) []string {
	all := strings.Split(broker, ",")
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// newClient makes a client of the broker that logs its warnings.
func newClient(broker string, options ...kgo.Opt) (*kgo.Client, error) {
	logger := kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds(broker)...), kgo.WithLogger(logger)}, options...)...)
}

// createTopic makes a topic with the replication factor that the brokers have for it, and waits until they tell of it.
func createTopic(ctx context.Context, broker, topic string, partitions int32) error {
	client, err := newClient(broker)
	if err != nil {
		return err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	if _, err := admin.CreateTopic(ctx, partitions, -1, nil, topic); err != nil {
		return err
	}
	return until(ctx, "the topic is there", func() (bool, error) {
		topics, err := admin.ListTopics(ctx, topic)
		return err == nil && topics.Has(topic), err
	})
}

// retried makes attempts until one succeeds, or the deadline passes: a new client whose first seed is dead may give up.
func retried[T any](ctx context.Context, attempt func() (T, error)) (T, error) {
	for {
		found, err := attempt()
		if err == nil || ctx.Err() != nil {
			return found, err
		}
		fmt.Fprintln(os.Stderr, "tried again after:", err)
		time.Sleep(20 * time.Millisecond)
	}
}

// until returns when the condition holds, and says what was waited for when the deadline passes first.
func until(ctx context.Context, what string, condition func() (bool, error)) error {
	for {
		holds, err := condition()
		if err != nil || holds {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("in %v it did not come about that %s", deadline, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
