// What Kafka's Java producer writes, ten records a topic in one batch, for record_crossing.py to keep.
//
//     java -cp 'libs/*' Crossing.java HOST:PORT PREFIX

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Crossing {
    static final long TIME_MS = 1_790_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", arguments[0]);
            settings.put("compression.type", codec);
            settings.put("linger.ms", "1000");
            var bytes = new ByteArraySerializer();
            try (var producer = new KafkaProducer<byte[], byte[]>(settings, bytes, bytes)) {
                producer.partitionsFor(arguments[1] + codec);
                for (int i = 0; i < 10; i++) {
                    byte[] key = i == 7 ? new byte[] {(byte) 0xff, (byte) i} : i == 9 ? null : ("k" + i).getBytes();
                    byte[] value = i == 8 ? null : ("value-" + i).getBytes();
                    var headers = new RecordHeaders();
                    headers.add("n", ("" + i).getBytes());
                    if (i == 3) {
                        headers.add("n", "again".getBytes()).add("raw", new byte[] {(byte) 0xfe}).add("null", null);
                    }
                    producer.send(new ProducerRecord<>(arguments[1] + codec, 0, TIME_MS + i, key, value, headers));
                }
                producer.flush();
            }
        }
    }
}
