// Basic flows of Pulsar's Go client, as a transcript that any broker must repeat.
//
//	go run . pulsar://HOST:PORT PREFIX [transactions | crossing]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

var (
	prefix string
	client pulsar.Client
)

func section(title string) { fmt.Printf("== %s ==\n", title) }

func line(label string, value any) {
	fmt.Println(strings.ReplaceAll(fmt.Sprintf("%s: %v", label, value), prefix, ""))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func attempt(label string, err error) {
	var known *pulsar.Error
	switch {
	case err == nil:
		line(label, "ok")
	case errors.As(err, &known):
		line(label, known.Result())
	default:
		line(label, "an error")
	}
}

func receive(consumer pulsar.Consumer, count int, patience time.Duration) []string {
	found := []string{}
	for len(found) < count {
		within, cancel := context.WithTimeout(context.Background(), patience)
		message, err := consumer.Receive(within)
		cancel()
		if err != nil {
			break
		}
		if err := consumer.Ack(message); err != nil {
			log.Fatal(err)
		}
		found = append(found, string(message.Payload()))
	}
	return found
}

func subscribe(options pulsar.ConsumerOptions) pulsar.Consumer {
	return must(client.Subscribe(options))
}

func messages() {
	section("messages")
	topic := prefix + "go"
	consumer := subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
	ids := []pulsar.MessageID{}
	for i := 0; i < 5; i++ {
		ids = append(ids, must(producer.Send(context.Background(), &pulsar.ProducerMessage{
			Payload: []byte(fmt.Sprintf("m%d", i)), Key: "k", Properties: map[string]string{"i": fmt.Sprint(i)},
		})))
	}
	first := must(consumer.Receive(context.Background()))
	line("first", fmt.Sprint(string(first.Payload()), " ", first.Key(), " ", first.Properties()))
	attempt("ack", consumer.Ack(first))
	line("rest", receive(consumer, 4, 5*time.Second))
	attempt("seek", consumer.Seek(ids[2]))
	line("then", receive(consumer, 10, 2*time.Second))
	attempt("seek by time", consumer.SeekByTime(time.Unix(0, 0)))
	line("then", receive(consumer, 10, 2*time.Second))
	attempt("unsubscribe", consumer.Unsubscribe())

	for _, codec := range []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD} {
		name := fmt.Sprintf("%sgo-%d", prefix, codec)
		reader := subscribe(pulsar.ConsumerOptions{Topic: name, SubscriptionName: "s"})
		writer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: name, CompressionType: codec}))
		for i := 0; i < 20; i++ {
			writer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))},
				func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		attempt("flush", writer.FlushWithCtx(context.Background()))
		line(fmt.Sprint("codec ", codec), len(receive(reader, 20, 5*time.Second)))
	}
}

func modes() {
	section("modes")
	for kind, name := range []string{"exclusive", "shared", "failover", "key_shared"} {
		topic := prefix + "go-" + name
		options := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: pulsar.SubscriptionType(kind)}
		one := subscribe(options)
		second, err := client.Subscribe(options)
		attempt(name+": a second", err)
		if second != nil {
			second.Close()
		}
		writer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
		for i := 0; i < 10; i++ {
			must(writer.Send(context.Background(), &pulsar.ProducerMessage{
				Payload: []byte(fmt.Sprint(i)), Key: fmt.Sprint("k", i%3),
			}))
		}
		line(name+": received", len(receive(one, 10, 3*time.Second)))
		one.Close()
		writer.Close()
	}
}

func refusals() {
	section("negative acks, dead letters, ack receipts")
	topic := prefix + "go-dead"
	letters := subscribe(pulsar.ConsumerOptions{Topic: topic + "-dlq", SubscriptionName: "l"})
	refusing := subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.Shared,
		NackRedeliveryDelay: 200 * time.Millisecond,
		DLQ:                 &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: topic + "-dlq"},
		AckWithResponse:     true,
	})
	writer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic}))
	must(writer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("bad")}))
	for i := 0; i < 2; i++ {
		message := must(refusing.Receive(context.Background()))
		line("try", message.RedeliveryCount())
		refusing.Nack(message)
	}
	line("dead letter", receive(letters, 1, 10*time.Second))
	must(writer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("good")}))
	line("with a receipt", receive(refusing, 1, 5*time.Second))
}

func readers() {
	section("readers, chunks, exclusive producers")
	reader := must(client.CreateReader(pulsar.ReaderOptions{
		Topic: prefix + "go", StartMessageID: pulsar.EarliestMessageID(),
	}))
	found := []string{}
	for reader.HasNext() {
		found = append(found, string(must(reader.Next(context.Background())).Payload()))
	}
	line("reader", found)
	large := prefix + "go-large"
	whole := subscribe(pulsar.ConsumerOptions{Topic: large, SubscriptionName: "s"})
	chunking := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: large, EnableChunking: true, DisableBatching: true,
	}))
	must(chunking.Send(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, 12_000_000)}))
	line("chunked", len(must(whole.Receive(context.Background())).Payload()))
	sole := prefix + "go-sole"
	must(client.CreateProducer(pulsar.ProducerOptions{Topic: sole, ProducerAccessMode: pulsar.ProducerAccessModeExclusive}))
	_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: sole, ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	line("a second exclusive producer is refused", err != nil)
	names := must(client.TopicPartitions(prefix + "go"))
	sort.Strings(names)
	line("partitions", names)
}

func main() {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	prefix = os.Args[2]
	within := len(os.Args) > 3 && os.Args[3] == "transactions"
	client = must(pulsar.NewClient(pulsar.ClientOptions{
		URL: os.Args[1], OperationTimeout: 15 * time.Second, Logger: plog.NewLoggerWithLogrus(quiet),
		EnableTransaction: within,
	}))
	if within {
		transactions()
		client.Close()
		return
	}
	if len(os.Args) > 3 && os.Args[3] == "crossing" {
		crossing()
		client.Close()
		return
	}
	messages()
	modes()
	refusals()
	readers()
	client.Close()
}
