package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// What Pulsar's Go producers write, ten messages a topic, for record_crossing.py to keep.
func crossing() {
	codecs := map[string]pulsar.CompressionType{
		"none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD,
	}
	for name, codec := range codecs {
		send(pulsar.ProducerOptions{
			Topic: prefix + name, CompressionType: codec,
			BatchingMaxMessages: 10, BatchingMaxPublishDelay: 10 * time.Second,
		})
		send(pulsar.ProducerOptions{Topic: prefix + name + "-single", CompressionType: codec, DisableBatching: true})
	}
	whole := strings.Repeat("0123456789", 1000)
	producer := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: prefix + "chunks", DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 4096,
		CompressionType: pulsar.NoCompression,
	}))
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Key: "k", Payload: []byte(whole)}))
	producer.Close()
}

func send(options pulsar.ProducerOptions) {
	producer := must(client.CreateProducer(options))
	defer producer.Close()
	for i := 0; i < 10; i++ {
		message := &pulsar.ProducerMessage{
			Payload: []byte(fmt.Sprintf("value-%d", i)), Key: fmt.Sprintf("k%d", i), OrderingKey: fmt.Sprintf("o%d", i),
			Properties: map[string]string{"a": "1", "n": fmt.Sprint(i)},
			EventTime:  time.UnixMilli(1_790_000_000_000 + int64(i)),
		}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			must(0, err)
		})
	}
	must(0, producer.Flush())
}
