// Compaction, compacted reading and table views with Pulsar's Java clients, and the policies around them.
//
//     java -cp 'LIB/*' PulsarCompaction.java pulsar://127.0.0.1:PORT http://127.0.0.1:PORT PREFIX
//
// Prints what any broker must repeat: no ids, no times; the prefix of the run is cut off.

import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.common.policies.data.*;

public class PulsarCompaction {
    static String prefix;
    static PulsarClient client;
    static PulsarAdmin admin;

    static void section(String title) {
        System.out.println("== " + title + " ==");
    }

    static void line(String label, Object value) {
        System.out.println((label + ": " + value).replace(prefix, ""));
    }

    static Object value(Callable<?> what) {
        try {
            Object found = what.call();
            return found == null ? "none" : found;
        } catch (Exception error) {
            Throwable cause = error;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            if (cause instanceof PulsarAdminException refused) {
                return cause.getClass().getSimpleName() + " " + refused.getStatusCode();
            }
            return cause.getClass().getSimpleName();
        }
    }

    static String topic(String name) {
        return "persistent://public/default/" + prefix + name;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void compact(String topic) throws Exception {
        admin.topics().triggerCompaction(topic);
        while (admin.topics().compactionStatus(topic).status == LongRunningProcessStatus.Status.RUNNING) {
            Thread.sleep(50);
        }
        line("compaction", admin.topics().compactionStatus(topic).status);
        Thread.sleep(500);
    }

    static List<String> read(String topic, boolean compacted) throws Exception {
        List<String> found = new ArrayList<>();
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest)
                .readCompacted(compacted).create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(5, TimeUnit.SECONDS);
                found.add(message.getKey() + "=" + (message.getData() == null ? "null" : new String(message.getData())));
            }
        }
        return found;
    }

    static void write(String topic, boolean batched, CompressionType codec) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(batched)
                .batchingMaxMessages(7).batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS)
                .compressionType(codec).create()) {
            for (int i = 0; i < 40; i++) {
                producer.newMessage().key("k" + i % 6).value(bytes("v" + i)).sendAsync();
            }
            producer.flush();
            producer.newMessage().key("k2").value(null).send();
            producer.newMessage().value(bytes("nobody's")).send();
        }
    }

    static void reading() throws Exception {
        section("reading");
        for (CompressionType codec : CompressionType.values()) {
            for (boolean batched : new boolean[] {false, true}) {
                String topic = topic("read-" + codec + "-" + batched);
                write(topic, batched, codec);
                line(codec + " " + batched + " before", read(topic, true).size());
                compact(topic);
                line("compacted", read(topic, true));
                line("all", read(topic, false).size());
                try (Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
                    producer.newMessage().key("k0").value(bytes("tail")).send();
                }
                line("with its tail", read(topic, true));
                compact(topic);
                line("again", read(topic, true));
            }
        }
    }

    static void consumers() throws Exception {
        section("consumers");
        String topic = topic("consumers");
        write(topic, true, CompressionType.NONE);
        compact(topic);
        for (SubscriptionType type : SubscriptionType.values()) {
            line(type + " may", value(() -> {
                Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("s-" + type)
                        .subscriptionType(type).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .readCompacted(true).subscribe();
                List<String> found = new ArrayList<>();
                // The first of a failover subscription takes Apache Pulsar a second.
                for (Message<byte[]> message; (message = consumer.receive(2, TimeUnit.SECONDS)) != null; ) {
                    found.add(message.getKey() + "=" + new String(message.getData()));
                    consumer.acknowledgeCumulative(message);
                }
                consumer.seek(MessageId.earliest);
                Message<byte[]> first = consumer.receive(5, TimeUnit.SECONDS);
                consumer.close();
                return found + ", after a seek " + new String(first.getData());
            }));
        }
    }

    static void tables() throws Exception {
        section("table views");
        String topic = topic("table");
        write(topic, false, CompressionType.NONE);
        compact(topic);
        try (TableView<byte[]> table = client.newTableView().topic(topic).create();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            line("keys", new TreeSet<>(table.keySet()));
            line("k0", new String(table.get("k0")));
            Map<String, String> heard = Collections.synchronizedMap(new TreeMap<>());
            table.listen((key, data) -> heard.put(key, data == null ? "gone" : new String(data)));
            producer.newMessage().key("k0").value(bytes("new")).send();
            producer.newMessage().key("k1").value(null).send();
            for (int i = 0; i < 100 && heard.size() < 2; i++) {
                Thread.sleep(50);
            }
            line("heard", heard);
            line("k0", new String(table.get("k0")));
            line("k1 is there", table.containsKey("k1"));
            line("size", table.size());
        }
    }

    static void admin() throws Exception {
        section("admin");
        String topic = topic("admin");
        admin.topics().createNonPartitionedTopic(topic);
        line("status", admin.topics().compactionStatus(topic).status);
        line("of nothing", value(() -> { compact(topic); return read(topic, true); }));
        line("threshold", value(() -> admin.topicPolicies().getCompactionThreshold(topic)));
        admin.topicPolicies().setCompactionThreshold(topic, 1000);
        for (int i = 0; i < 100 && admin.topicPolicies().getCompactionThreshold(topic) == null; i++) {
            Thread.sleep(50);
        }
        line("threshold", value(() -> admin.topicPolicies().getCompactionThreshold(topic)));
        line("too low", value(() -> { admin.topicPolicies().setCompactionThreshold(topic, -1); return null; }));
        admin.topicPolicies().removeCompactionThreshold(topic);
        admin.namespaces().setCompactionThreshold("public/default", 100_000_000);
        line("of the namespace", value(() -> admin.namespaces().getCompactionThreshold("public/default")));
        admin.namespaces().removeCompactionThreshold("public/default");
        line("not there", value(() -> { admin.topics().triggerCompaction(topic("none")); return null; }));
        TopicStats stats = admin.topics().getStats(topic("table"));
        line("removed some", stats.getCompaction().getLastCompactionRemovedEventCount() > 30);
        line("last failure", stats.getCompaction().getLastCompactionFailedTimestamp());
        line("entries", admin.topics().getInternalStats(topic("table")).compactedLedger.entries);
    }

    static void permissions() throws Exception {
        section("permissions");
        String topic = topic("admin");
        admin.topics().grantPermission(topic, "clerk", EnumSet.of(AuthAction.produce));
        line("of the topic", admin.topics().getPermissions(topic));
        admin.topics().revokePermissions(topic, "clerk");
        line("of nobody", admin.topics().getPermissions(topic));
        admin.namespaces().grantPermissionOnSubscription("public/default", prefix + "s", Set.of("clerk"));
        line("of a subscription", admin.namespaces().getPermissionOnSubscription("public/default").get(prefix + "s"));
        admin.namespaces().revokePermissionOnSubscription("public/default", prefix + "s", "clerk");
        admin.topics().createSubscription(topic, "s", MessageId.earliest);
        line("backlog", value(() -> admin.topics().analyzeSubscriptionBacklog(topic, "s", Optional.empty()).getMessages()));
        line("trim", value(() -> { admin.topics().trimTopic(topic); return null; }));
    }

    public static void main(String[] args) throws Exception {
        prefix = args[2];
        client = PulsarClient.builder().serviceUrl(args[0]).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(args[1]).build();
        reading();
        consumers();
        tables();
        admin();
        permissions();
        client.close();
        admin.close();
        System.exit(0);
    }
}
