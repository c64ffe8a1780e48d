package main

import (
	"context"
	"sort"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Transactions: what is sent and acknowledged in them, and how they end.  This client does not say in a message's
// metadata which transaction it is of, and in a batching producer goes on naming the last one.  So Apache Pulsar
// delivers what was aborted, which ours does not, and what follows a batch is lost on both: that is left out.

func begin(timeout time.Duration) pulsar.Transaction {
	return must(client.NewTransaction(timeout))
}

func state(txn pulsar.Transaction) string {
	return map[pulsar.TxnState]string{
		pulsar.TxnOpen: "open", pulsar.TxnCommitting: "committing", pulsar.TxnAborting: "aborting",
		pulsar.TxnCommitted: "committed", pulsar.TxnAborted: "aborted", pulsar.TxnError: "error",
		pulsar.TxnTimeout: "timed out",
	}[txn.GetState()]
}

func sendIn(producer pulsar.Producer, txn pulsar.Transaction, values ...string) {
	for _, value := range values {
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(value), Transaction: txn}))
	}
}

func take(consumer pulsar.Consumer, count int) []pulsar.Message {
	found := []pulsar.Message{}
	for len(found) < count {
		within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		message, err := consumer.Receive(within)
		cancel()
		if err != nil {
			break
		}
		found = append(found, message)
	}
	return found
}

func next(consumer pulsar.Consumer) string {
	within, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	message, err := consumer.Receive(within)
	if err != nil {
		return "nothing"
	}
	return string(message.Payload())
}

// Whether a message comes, whatever comes before it.
func seen(consumer pulsar.Consumer, wanted string) bool {
	for value := next(consumer); value != "nothing"; value = next(consumer) {
		if value == wanted {
			return true
		}
	}
	return false
}

func payloads(messages []pulsar.Message) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Payload()))
	}
	sort.Strings(found)
	return found
}

func transactionalMessages() {
	section("messages")
	topic := prefix + "go-txn"
	consumer := subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
	txn := begin(time.Minute)
	line("state", state(txn))
	sendIn(producer, txn, "a", "b", "c")
	line("before the commit", next(consumer))
	attempt("commit", txn.Commit(context.Background()))
	line("state", state(txn))
	line("after it", payloads(take(consumer, 3)))
	line("commit again is refused", txn.Commit(context.Background()) != nil)
	txn = begin(time.Minute)
	sendIn(producer, txn, "never")
	attempt("abort", txn.Abort(context.Background()))
	line("state", state(txn))
	sendIn(producer, nil, "plain")
	line("after the abort", seen(consumer, "plain"))
	txn = begin(2 * time.Second)
	sendIn(producer, txn, "never")
	sendIn(producer, nil, "behind it")
	time.Sleep(2 * time.Second)
	line("when its time is over", seen(consumer, "behind it"))
	line("state", state(txn))
	line("commit is refused", txn.Commit(context.Background()) != nil)
	producer.Close()
	consumer.Close()
}

func transactionalAcks() {
	section("acknowledgements")
	topic := prefix + "go-txn-acks"
	consumer := subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: pulsar.Shared})
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
	sendIn(producer, nil, "a", "b")
	messages := take(consumer, 2)
	txn := begin(time.Minute)
	attempt("in one", consumer.AckWithTxn(messages[0], txn))
	other := begin(time.Minute)
	line("in another is refused", consumer.AckWithTxn(messages[0], other) != nil)
	attempt("abort", txn.Abort(context.Background()))
	again := take(consumer, 1)
	line("again", payloads(again))
	txn = begin(time.Minute)
	attempt("in a third", consumer.AckWithTxn(again[0], txn))
	attempt("commit", txn.Commit(context.Background()))
	consumer.Close()
	consumer = subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: pulsar.Shared})
	line("left", payloads(take(consumer, 1)))
	line("left", next(consumer))
	consumer.Close()
	producer.Close()
}

func transactionalCopy() {
	section("consume and produce")
	source := subscribe(pulsar.ConsumerOptions{Topic: prefix + "go-in", SubscriptionName: "s", Type: pulsar.Shared})
	result := subscribe(pulsar.ConsumerOptions{Topic: prefix + "go-out", SubscriptionName: "s"})
	in := must(client.CreateProducer(pulsar.ProducerOptions{Topic: prefix + "go-in", DisableBatching: true}))
	out := must(client.CreateProducer(pulsar.ProducerOptions{Topic: prefix + "go-out", DisableBatching: true}))
	for i := 0; i < 30; i++ {
		sendIn(in, nil, strconv.Itoa(i))
	}
	for copied, tries := 0, 0; copied < 30; tries++ {
		txn := begin(time.Minute)
		taken := take(source, min(5, 30-copied))
		for _, message := range taken {
			sendIn(out, txn, string(message.Payload()))
			if err := source.AckWithTxn(message, txn); err != nil {
				line("refused", err)
			}
		}
		if tries%3 == 1 {
			attempt("abort", txn.Abort(context.Background()))
		} else {
			attempt("commit", txn.Commit(context.Background()))
			copied += len(taken)
		}
	}
	copies := map[string]bool{}
	for value := next(result); value != "nothing"; value = next(result) {
		copies[value] = true
	}
	line("copied", len(copies))
	line("left", next(source))
}

func transactions() {
	transactionalMessages()
	transactionalAcks()
	transactionalCopy()
}
