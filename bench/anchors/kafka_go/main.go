// Counts up in a topic and reads it in a group of two beside that, with franz-go: what was acknowledged and what
// was read, a line each, for kafka_go.py to compare.
//
//	kafka-go BOOTSTRAP TOPIC GROUP RECORDS RECORDS_A_SECOND
//	acked PARTITION OFFSET KEY VALUE
//	read PARTITION OFFSET KEY VALUE
//
// The producer is idempotent with acks=all.  A member commits what a poll brought before it lets go of anything,
// so that nothing needs to come again.  It ends when as many were read as were acknowledged, or at end of input.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const keys = 20

var (
	bootstrap = kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	topic     = os.Args[2]
	group     = os.Args[3]
	records   = number(os.Args[4])
	rate      = number(os.Args[5])
	readSoFar atomic.Int64
	printing  sync.Mutex
)

func number(text string) int { return must(strconv.Atoi(text)) }

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func say(what string, r *kgo.Record) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(what, r.Partition, r.Offset, string(r.Key), string(r.Value))
}

func produce() {
	client := must(kgo.NewClient(bootstrap, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(5*time.Millisecond)))
	defer client.Close()
	for i := 0; i < records; i++ {
		record := &kgo.Record{Key: []byte(fmt.Sprint("key-", i%keys)), Value: []byte(strconv.Itoa(i))}
		client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			must(0, err)
			say("acked", r)
		})
		time.Sleep(time.Second / time.Duration(rate))
	}
	must(0, client.Flush(context.Background()))
}

func consume(ctx context.Context) {
	client := must(kgo.NewClient(bootstrap, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll()))
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetched := client.PollFetches(ctx)
		fetched.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, topic, partition, err)
			}
		})
		fetched.EachRecord(func(r *kgo.Record) { say("read", r) })
		if taken := fetched.Records(); len(taken) > 0 {
			for client.CommitRecords(context.Background(), taken...) != nil {
				time.Sleep(100 * time.Millisecond)
			}
			readSoFar.Add(int64(len(taken)))
		}
		client.AllowRebalance()
	}
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	go func() { // whoever started this has ended, or has seen enough
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		}
		os.Exit(3)
	}()
	var members sync.WaitGroup
	for range 2 {
		members.Add(1)
		go func() {
			defer members.Done()
			consume(ctx)
		}()
	}
	produce()
	for readSoFar.Load() < int64(records) {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // for what should not come
	stop()
	members.Wait()
}
