// Basic flows of Pulsar's Java client and of its admin client (what pulsar-admin is made of), as a transcript.
//
//     java -cp 'LIB/*' PulsarFlows.java pulsar://127.0.0.1:PORT http://127.0.0.1:PORT PREFIX
//
// Prints what any broker must repeat: no ids, no times, no rates; the prefix of the run is cut off.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.common.policies.data.*;

public class PulsarFlows {
    static String prefix;
    static PulsarClient client;
    static PulsarAdmin admin;

    static void section(String title) {
        System.out.println("== " + title + " ==");
    }

    static void line(String label, Object value) {
        System.out.println((label + ": " + value).replace(prefix, ""));
    }

    interface Action {
        void run() throws Exception;
    }

    static void attempt(String label, Action action) {
        try {
            action.run();
            line(label, "ok");
        } catch (PulsarAdminException error) {
            line(label, error.getClass().getSimpleName() + " " + error.getStatusCode());
        } catch (Exception error) {
            line(label, error.getClass().getSimpleName());
        }
    }

    static Object value(Callable<?> what) {
        try {
            return what.call();
        } catch (PulsarAdminException error) {
            return error.getClass().getSimpleName() + " " + error.getStatusCode();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    static List<String> receive(Consumer<byte[]> consumer, int count, int seconds) throws Exception {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            Message<byte[]> message = consumer.receive(seconds, TimeUnit.SECONDS);
            if (message == null) {
                break;
            }
            consumer.acknowledge(message);
            found.add(new String(message.getData(), StandardCharsets.UTF_8));
        }
        return found;
    }

    static void tenants() {
        section("tenants and namespaces");
        String tenant = prefix + "acme";
        line("clusters", value(() -> admin.clusters().getClusters()));
        TenantInfo info = TenantInfo.builder().allowedClusters(Set.of("standalone")).adminRoles(Set.of("boss")).build();
        attempt("create tenant", () -> admin.tenants().createTenant(tenant, info));
        attempt("again", () -> admin.tenants().createTenant(tenant, info));
        line("its roles", value(() -> admin.tenants().getTenantInfo(tenant).getAdminRoles()));
        line("is listed", value(() -> admin.tenants().getTenants().contains(tenant)));
        attempt("namespace", () -> admin.namespaces().createNamespace(tenant + "/ns"));
        attempt("again", () -> admin.namespaces().createNamespace(tenant + "/ns"));
        attempt("of no tenant", () -> admin.namespaces().createNamespace(prefix + "nobody/ns"));
        line("namespaces", value(() -> admin.namespaces().getNamespaces(tenant)));
        line("policies of none", value(() -> admin.namespaces().getPolicies(tenant + "/none")));
        String ns = tenant + "/ns";
        attempt("retention", () -> admin.namespaces().setRetention(ns, new RetentionPolicies(60, 100)));
        line("retention", value(() -> admin.namespaces().getRetention(ns)));
        attempt("ttl", () -> admin.namespaces().setNamespaceMessageTTL(ns, 300));
        line("ttl", value(() -> admin.namespaces().getNamespaceMessageTTL(ns)));
        BacklogQuota quota = BacklogQuota.builder().limitSize(1 << 20)
            .retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build();
        attempt("backlog quota", () -> admin.namespaces().setBacklogQuota(ns, quota));
        line("backlog quota", value(() -> {
            BacklogQuota set = admin.namespaces().getBacklogQuotaMap(ns).get(BacklogQuota.BacklogQuotaType.destination_storage);
            return set.getLimitSize() + " " + set.getPolicy();
        }));
        attempt("deduplication", () -> admin.namespaces().setDeduplicationStatus(ns, true));
        line("deduplication", value(() -> admin.namespaces().getDeduplicationStatus(ns)));
        attempt("max producers", () -> admin.namespaces().setMaxProducersPerTopic(ns, 7));
        line("max producers", value(() -> admin.namespaces().getMaxProducersPerTopic(ns)));
        attempt("max consumers", () -> admin.namespaces().setMaxConsumersPerTopic(ns, 8));
        line("max consumers", value(() -> admin.namespaces().getMaxConsumersPerTopic(ns)));
        attempt("dispatch rate", () -> admin.namespaces().setDispatchRate(ns,
            DispatchRate.builder().dispatchThrottlingRateInMsg(500).dispatchThrottlingRateInByte(1 << 20).ratePeriodInSecond(1).build()));
        line("dispatch rate", value(() -> admin.namespaces().getDispatchRate(ns).getDispatchThrottlingRateInMsg()));
        attempt("publish rate", () -> admin.namespaces().setPublishRate(ns, new PublishRate(1000, 1 << 20)));
        line("publish rate", value(() -> admin.namespaces().getPublishRate(ns).publishThrottlingRateInMsg));
        attempt("persistence", () -> admin.namespaces().setPersistence(ns, new PersistencePolicies(1, 1, 1, 0)));
        attempt("delete tenant with namespaces", () -> admin.tenants().deleteTenant(tenant));
        attempt("delete namespace", () -> admin.namespaces().deleteNamespace(ns));
        attempt("delete tenant", () -> admin.tenants().deleteTenant(tenant));
        line("is listed", value(() -> admin.tenants().getTenants().contains(tenant)));
    }

    static void topics() throws Exception {
        section("topics");
        String ns = "public/" + prefix + "flows";
        admin.namespaces().createNamespace(ns);
        String plain = "persistent://" + ns + "/plain";
        String parts = "persistent://" + ns + "/parts";
        attempt("create", () -> admin.topics().createNonPartitionedTopic(plain));
        attempt("again", () -> admin.topics().createNonPartitionedTopic(plain));
        attempt("partitioned", () -> admin.topics().createPartitionedTopic(parts, 3));
        attempt("again", () -> admin.topics().createPartitionedTopic(parts, 3));
        line("partitions", value(() -> admin.topics().getPartitionedTopicMetadata(parts).partitions));
        attempt("more", () -> admin.topics().updatePartitionedTopic(parts, 5));
        attempt("fewer", () -> admin.topics().updatePartitionedTopic(parts, 2));
        line("partitions", value(() -> admin.topics().getPartitionedTopicMetadata(parts).partitions));
        line("list", value(() -> new TreeSet<>(admin.topics().getList(ns))));
        line("partitioned list", value(() -> admin.topics().getPartitionedTopicList(ns)));
        attempt("subscription", () -> admin.topics().createSubscription(plain, "s", MessageId.earliest));
        attempt("again", () -> admin.topics().createSubscription(plain, "s", MessageId.earliest));
        line("subscriptions", value(() -> admin.topics().getSubscriptions(plain)));
        try (Producer<byte[]> producer = client.newProducer().topic(plain).enableBatching(false).create()) {
            for (int i = 0; i < 10; i++) {
                producer.newMessage().key("k" + i).value(("m" + i).getBytes()).send();
            }
            TopicStats stats = admin.topics().getStats(plain);
            line("producers", stats.getPublishers().size());
            line("messages in", stats.getMsgInCounter());
            line("backlog", stats.getSubscriptions().get("s").getMsgBacklog());
        }
        line("peek", value(() -> {
            List<String> found = new ArrayList<>();
            for (Message<byte[]> message : admin.topics().peekMessages(plain, "s", 2)) {
                found.add(new String(message.getData()) + " " + message.getKey());
            }
            return found;
        }));
        attempt("skip 3", () -> admin.topics().skipMessages(plain, "s", 3));
        line("backlog", value(() -> admin.topics().getStats(plain).getSubscriptions().get("s").getMsgBacklog()));
        attempt("skip all", () -> admin.topics().skipAllMessages(plain, "s"));
        line("backlog", value(() -> admin.topics().getStats(plain).getSubscriptions().get("s").getMsgBacklog()));
        attempt("reset to an hour ago", () -> admin.topics().resetCursor(plain, "s", System.currentTimeMillis() - 3_600_000));
        line("backlog", value(() -> admin.topics().getStats(plain).getSubscriptions().get("s").getMsgBacklog()));
        attempt("reset to latest", () -> admin.topics().resetCursor(plain, "s", MessageId.latest));
        line("backlog", value(() -> admin.topics().getStats(plain).getSubscriptions().get("s").getMsgBacklog()));
        line("last message", value(() -> admin.topics().getLastMessageId(plain) != null));
        line("internal stats: cursors", value(() -> admin.topics().getInternalStats(plain).cursors.keySet()));
        line("partitioned stats", value(() -> admin.topics().getPartitionedStats(parts, true).getPartitions().size()));
        attempt("unload", () -> admin.topics().unload(plain));
        attempt("delete the subscription", () -> admin.topics().deleteSubscription(plain, "s"));
        attempt("again", () -> admin.topics().deleteSubscription(plain, "s"));
        line("subscriptions", value(() -> admin.topics().getSubscriptions(plain)));
        attempt("terminate", () -> admin.topics().terminateTopic(plain));
        attempt("produce then", () -> client.newProducer().topic(plain).create().send("x".getBytes()));
        attempt("delete", () -> admin.topics().delete(plain));
        attempt("again", () -> admin.topics().delete(plain));
        attempt("stats of none", () -> admin.topics().getStats(plain));
        attempt("delete partitioned", () -> admin.topics().deletePartitionedTopic(parts));
        line("list", value(() -> admin.topics().getList(ns)));
        attempt("delete namespace", () -> admin.namespaces().deleteNamespace(ns));
    }

    static void messages() throws Exception {
        section("messages");
        String topic = prefix + "java";
        Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("s").subscribe();
        Producer<byte[]> producer = client.newProducer().topic(topic).create();
        List<MessageId> ids = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            ids.add(producer.newMessage().key("k").property("i", "" + i).eventTime(1000 + i).value(("m" + i).getBytes()).send());
        }
        Message<byte[]> first = consumer.receive(5, TimeUnit.SECONDS);
        line("first", new String(first.getData()) + " " + first.getKey() + " " + first.getProperties() + " " + first.getEventTime());
        line("its id", first.getMessageId().equals(ids.get(0)));
        consumer.acknowledge(first);
        line("rest", receive(consumer, 4, 5));
        consumer.seek(ids.get(2));
        line("after a seek", receive(consumer, 10, 2));
        consumer.seek(MessageId.earliest);
        line("from the start", receive(consumer, 5, 2));
        line("last id", consumer.getLastMessageIds().size());
        consumer.close();
        for (CompressionType codec : List.of(CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY)) {
            String name = prefix + "java-" + codec;
            try (Consumer<byte[]> reader = client.newConsumer().topic(name).subscriptionName("s").subscribe();
                 Producer<byte[]> writer = client.newProducer().topic(name).compressionType(codec).batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS).create()) {
                for (int i = 0; i < 20; i++) {
                    writer.sendAsync(("c" + i).getBytes());
                }
                writer.flush();
                line("" + codec, receive(reader, 20, 5).size());
            }
        }
        section("ack receipts and batch indexes");
        String acked = prefix + "java-acked";
        Consumer<byte[]> careful = client.newConsumer().topic(acked).subscriptionName("s").isAckReceiptEnabled(true)
            .enableBatchIndexAcknowledgment(true).subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> batched = client.newProducer().topic(acked).batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
        for (int i = 0; i < 6; i++) {
            batched.sendAsync(("b" + i).getBytes());
        }
        batched.flush();
        for (int i = 0; i < 6; i++) {
            Message<byte[]> message = careful.receive(5, TimeUnit.SECONDS);
            if (i % 2 == 0) {
                careful.acknowledgeAsync(message).get(5, TimeUnit.SECONDS);
            }
        }
        careful.close();
        careful = client.newConsumer().topic(acked).subscriptionName("s").enableBatchIndexAcknowledgment(true)
            .subscriptionType(SubscriptionType.Shared).subscribe();
        line("the rest of the batch", receive(careful, 6, 2));
        careful.close();

        section("modes");
        for (SubscriptionType type : SubscriptionType.values()) {
            String name = prefix + "java-" + type;
            Consumer<byte[]> one = client.newConsumer().topic(name).subscriptionName("s").subscriptionType(type).subscribe();
            attempt(type + ": a second", () ->
                client.newConsumer().topic(name).subscriptionName("s").subscriptionType(type).subscribe().close());
            try (Producer<byte[]> writer = client.newProducer().topic(name).enableBatching(false).create()) {
                for (int i = 0; i < 10; i++) {
                    writer.newMessage().key("k" + i % 3).value(("v" + i).getBytes()).send();
                }
            }
            line(type + ": received", receive(one, 10, 3).size());
            one.close();
        }
        section("negative acks, dead letters, delay");
        String dead = prefix + "java-dead";
        Consumer<byte[]> refusing = client.newConsumer().topic(dead).subscriptionName("s").subscriptionType(SubscriptionType.Shared)
            .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS)
            .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(dead + "-dlq").build()).subscribe();
        Consumer<byte[]> letters = client.newConsumer().topic(dead + "-dlq").subscriptionName("l").subscribe();
        client.newProducer().topic(dead).create().send("bad".getBytes());
        List<Integer> counts = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message<byte[]> message = refusing.receive(5, TimeUnit.SECONDS);
            if (message == null) {
                break;
            }
            counts.add(message.getRedeliveryCount());
            refusing.negativeAcknowledge(message);
        }
        line("tries", counts);
        line("dead letter", receive(letters, 1, 10));
        Producer<byte[]> delaying = client.newProducer().topic(prefix + "java-delay").create();
        Consumer<byte[]> waiting = client.newConsumer().topic(prefix + "java-delay").subscriptionName("s")
            .subscriptionType(SubscriptionType.Shared).subscribe();
        delaying.newMessage().deliverAfter(3, TimeUnit.SECONDS).value("late".getBytes()).send();
        delaying.newMessage().value("now".getBytes()).send();
        line("delayed", receive(waiting, 2, 10));

        section("readers, patterns, partitions");
        Reader<byte[]> reader = client.newReader().topic(prefix + "java").startMessageId(MessageId.earliest).create();
        List<String> read = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            read.add(new String(reader.readNext(5, TimeUnit.SECONDS).getData()));
        }
        line("reader", read);
        admin.topics().createPartitionedTopic("persistent://public/default/" + prefix + "java-parts", 3);
        Consumer<byte[]> all = client.newConsumer().topicsPattern(Pattern.compile("persistent://public/default/" + prefix + "java-parts.*"))
            .subscriptionName("p").subscribe();
        Producer<byte[]> spread = client.newProducer().topic(prefix + "java-parts").create();
        for (int i = 0; i < 30; i++) {
            spread.newMessage().key("k" + i).value(("p" + i).getBytes()).send();
        }
        line("through a pattern", new TreeSet<>(receive(all, 30, 5)).size());
        all.close();
        section("exclusive producers");
        String sole = prefix + "java-sole";
        Producer<byte[]> alone = client.newProducer().topic(sole).accessMode(ProducerAccessMode.Exclusive).create();
        attempt("another", () -> client.newProducer().topic(sole).accessMode(ProducerAccessMode.Exclusive).create());
        Producer<byte[]> fencing = client.newProducer().topic(sole).accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        attempt("the fenced one", () -> alone.send("x".getBytes()));
        attempt("the fencing one", () -> fencing.send("y".getBytes()));
        section("chunks");
        String large = prefix + "java-large";
        Consumer<byte[]> whole = client.newConsumer().topic(large).subscriptionName("s").subscribe();
        Producer<byte[]> chunking = client.newProducer().topic(large).enableChunking(true).enableBatching(false).create();
        chunking.send(new byte[12_000_000]);
        Message<byte[]> message = whole.receive(20, TimeUnit.SECONDS);
        line("chunked", message == null ? null : message.getData().length);
    }

    public static void main(String[] arguments) throws Exception {
        prefix = arguments[2];
        client = PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(15, TimeUnit.SECONDS).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
        tenants();
        topics();
        messages();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
