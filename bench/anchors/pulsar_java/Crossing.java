// What Pulsar's Java producers write, ten messages a topic, for record_crossing.py to keep.
//
//     java -cp 'lib/*' Crossing.java pulsar://HOST:PORT PREFIX

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;

public class Crossing {
    static final long EVENT_MS = 1_790_000_000_000L;

    static void send(ProducerBuilder<byte[]> builder) throws Exception {
        builder.loadConf(Map.of("compressMinMsgBodySize", 1));
        try (Producer<byte[]> producer = builder.create()) {
            for (int i = 0; i < 10; i++) {
                TypedMessageBuilder<byte[]> message = producer.newMessage();
                if (i == 7) {
                    message.keyBytes(new byte[] {(byte) 0xff, (byte) i});
                } else {
                    message.key("k" + i);
                }
                message.property("a", "1").property("n", "" + i).eventTime(EVENT_MS + i);
                message.orderingKey(("o" + i).getBytes()).value(i == 8 ? null : ("value-" + i).getBytes());
                message.sendAsync();
            }
            producer.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String prefix = arguments[1];
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (CompressionType codec : CompressionType.values()) {
                String name = prefix + codec.name().toLowerCase();
                send(client.newProducer().topic(name).compressionType(codec).enableBatching(true)
                        .batchingMaxMessages(10).batchingMaxPublishDelay(10, TimeUnit.SECONDS));
                send(client.newProducer().topic(name + "-single").compressionType(codec).enableBatching(false));
            }
            try (Producer<String> producer = client.newProducer(Schema.STRING).topic(prefix + "schema").create()) {
                producer.newMessage().key("k").value("text").send();
            }
        }
    }
}
