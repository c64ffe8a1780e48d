// Transactions with Pulsar's Java client and its admin client, as a transcript.
//
//     java -cp 'LIB/*' PulsarTransactions.java pulsar://127.0.0.1:PORT http://127.0.0.1:PORT PREFIX
//
// Prints what any broker must repeat: no ids, no times; the prefix of the run is cut off.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.policies.data.*;

public class PulsarTransactions {
    static String prefix;
    static PulsarClient client;
    static PulsarAdmin admin;

    static void section(String title) {
        System.out.println("== " + title + " ==");
    }

    static void line(String label, Object value) {
        System.out.println((label + ": " + value).replace(prefix, ""));
    }

    static String reason(Throwable error) {
        while ((error instanceof ExecutionException || error instanceof java.util.concurrent.CompletionException)
                && error.getCause() != null) {
            error = error.getCause();
        }
        if (error instanceof PulsarAdminException refused) {
            return error.getClass().getSimpleName() + " " + refused.getStatusCode();
        }
        return error.getClass().getSimpleName();
    }

    static Object value(Callable<?> what) {
        try {
            Object found = what.call();
            return found == null ? "ok" : found;
        } catch (Exception error) {
            return reason(error);
        }
    }

    static String topic(String name) {
        return "persistent://public/default/" + prefix + name;
    }

    static Transaction begin(long timeout, TimeUnit unit) throws Exception {
        return client.newTransaction().withTransactionTimeout(timeout, unit).build().get();
    }

    static Transaction begin() throws Exception {
        return begin(1, TimeUnit.MINUTES);
    }

    static Object end(Transaction txn, boolean commit) {
        return value(() -> {
            (commit ? txn.commit() : txn.abort()).get(20, TimeUnit.SECONDS);
            return null;
        });
    }

    static Producer<byte[]> producer(String name, boolean batching) throws Exception {
        return client.newProducer().topic(name).enableBatching(batching)
                .batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS).sendTimeout(0, TimeUnit.SECONDS).create();
    }

    static Consumer<byte[]> consumer(String name, SubscriptionType type) throws Exception {
        return client.newConsumer().topic(name).subscriptionName("s").subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .enableBatchIndexAcknowledgment(true).subscribe();
    }

    static void send(Producer<byte[]> producer, Transaction txn, String... values) throws Exception {
        List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (String one : values) {
            TypedMessageBuilder<byte[]> message = txn == null ? producer.newMessage() : producer.newMessage(txn);
            sent.add(message.key(one).value(one.getBytes(StandardCharsets.UTF_8)).sendAsync());
            if (sent.size() == 1) {
                producer.flush();
                sent.get(0).get(20, TimeUnit.SECONDS); // the client sends in any order until it has told the topic
            }
        }
        producer.flush();
        for (var each : sent) {
            each.get(20, TimeUnit.SECONDS);
        }
    }

    static List<Message<byte[]>> take(Consumer<byte[]> consumer, int count) throws Exception {
        List<Message<byte[]>> found = new ArrayList<>();
        while (found.size() < count) {
            Message<byte[]> message = consumer.receive(10, TimeUnit.SECONDS);
            if (message == null) {
                break;
            }
            found.add(message);
        }
        return found;
    }

    static List<String> values(List<Message<byte[]>> messages) {
        List<String> found = new ArrayList<>();
        for (Message<byte[]> message : messages) {
            found.add(new String(message.getData(), StandardCharsets.UTF_8));
        }
        return found;
    }

    static String next(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(1, TimeUnit.SECONDS);
        return message == null ? "nothing" : new String(message.getData(), StandardCharsets.UTF_8);
    }

    static void messages() throws Exception {
        section("messages");
        admin.topics().createPartitionedTopic(topic("parts"), 2);
        Producer<byte[]> single = producer(topic("single"), false);
        Producer<byte[]> parts = producer(topic("parts"), true);
        Consumer<byte[]> one = consumer(topic("single"), SubscriptionType.Exclusive);
        Consumer<byte[]> many = consumer(topic("parts"), SubscriptionType.Shared);
        Transaction txn = begin();
        line("state", txn.getState());
        send(single, txn, "a", "b");
        send(parts, txn, "c", "d", "e");
        line("before the commit", next(one) + " " + next(many));
        line("commit", end(txn, true));
        line("state", txn.getState());
        line("after it", values(take(one, 2)) + " " + new TreeSet<>(values(take(many, 3))));
        line("commit again", end(txn, true));
        line("abort after it", end(txn, false));
        txn = begin();
        send(single, txn, "never");
        line("abort", end(txn, false));
        line("state", txn.getState());
        send(single, null, "plain");
        line("after the abort", values(take(one, 1)) + " " + next(one));
        txn = begin();
        send(single, txn, "open");
        send(single, null, "behind it");
        line("behind an open one", next(one));
        line("commit", end(txn, true));
        line("both", values(take(one, 2)));
        line("empty", end(begin(), true) + " " + end(begin(), false));
        Transaction over = txn;
        line("send in one that has ended", value(() -> {
            single.newMessage(over).value("late".getBytes()).send();
            return null;
        }));
        single.close();
        parts.close();
        one.close();
        many.close();
    }

    static void batches() throws Exception {
        section("batches");
        Producer<byte[]> producer = producer(topic("batches"), true);
        Consumer<byte[]> consumer = consumer(topic("batches"), SubscriptionType.Exclusive);
        Transaction first = begin();
        Transaction second = begin();
        List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            Transaction txn = i % 2 == 0 ? first : second;
            sent.add(producer.newMessage(txn).value(("m" + i).getBytes()).sendAsync());
        }
        producer.flush();
        for (var each : sent) {
            each.get();
        }
        line("abort", end(second, false));
        line("before the commit", next(consumer));
        line("commit", end(first, true));
        line("even ones", new TreeSet<>(values(take(consumer, 10))) + " " + next(consumer));
        producer.close();
        consumer.close();
    }

    static void acknowledgements(SubscriptionType type, boolean batching) throws Exception {
        section("acknowledgements, " + type + (batching ? ", batches" : ""));
        String name = topic("acks-" + type + batching);
        Producer<byte[]> producer = producer(name, batching);
        Consumer<byte[]> consumer = consumer(name, type);
        send(producer, null, "a", "b", "c", "d");
        List<Message<byte[]>> messages = take(consumer, 4);
        Transaction txn = begin();
        for (Message<byte[]> message : messages.subList(0, 2)) {
            consumer.acknowledgeAsync(message.getMessageId(), txn).get();
        }
        line("abort", end(txn, false));
        Transaction other = begin();
        if (type == SubscriptionType.Shared || type == SubscriptionType.Key_Shared) {
            List<String> again = values(take(consumer, 2));
            line("again", new TreeSet<>(again).containsAll(List.of("a", "b")));
            while (!next(consumer).equals("nothing")) { }
        } else {
            line("again", values(take(consumer, 4)));
        }
        consumer.acknowledgeAsync(messages.get(0).getMessageId(), other).get();
        Transaction third = begin();
        consumer.acknowledgeAsync(messages.get(1).getMessageId(), third).get();
        line("twice in one transaction",
                value(() -> consumer.acknowledgeAsync(messages.get(1).getMessageId(), third).get()));
        line("in another one",
                value(() -> consumer.acknowledgeAsync(messages.get(0).getMessageId(), third).get()));
        line("commit of the failed one", end(third, true));
        take(consumer, type == SubscriptionType.Shared || type == SubscriptionType.Key_Shared ? 1 : 3);
        while (!next(consumer).equals("nothing")) { }
        for (Message<byte[]> message : messages.subList(1, 4)) {
            Transaction fourth = begin();
            consumer.acknowledgeAsync(message.getMessageId(), fourth).get();
            end(fourth, true);
        }
        line("commit", end(other, true));
        Transaction late = begin();
        line("of what is acknowledged",
                value(() -> consumer.acknowledgeAsync(messages.get(0).getMessageId(), late).get()));
        end(late, false);
        consumer.redeliverUnacknowledgedMessages();
        line("left", next(consumer));
        consumer.close();
        Consumer<byte[]> back = consumer(name, type);
        line("left for who comes back", next(back));
        back.close();
        producer.close();
    }

    static void cumulative() throws Exception {
        section("cumulative");
        Producer<byte[]> producer = producer(topic("cumulative"), false);
        Consumer<byte[]> consumer = consumer(topic("cumulative"), SubscriptionType.Exclusive);
        send(producer, null, "a", "b", "c", "d");
        List<Message<byte[]>> messages = take(consumer, 4);
        Transaction txn = begin();
        consumer.acknowledgeCumulativeAsync(messages.get(1).getMessageId(), txn).get();
        line("backwards",
                value(() -> consumer.acknowledgeCumulativeAsync(messages.get(0).getMessageId(), txn).get()));
        Transaction other = begin();
        line("in another one",
                value(() -> consumer.acknowledgeCumulativeAsync(messages.get(2).getMessageId(), other).get()));
        line("abort", end(txn, false) + " " + end(other, false));
        Transaction third = begin();
        consumer.acknowledgeCumulativeAsync(messages.get(1).getMessageId(), third).get();
        consumer.acknowledgeCumulativeAsync(messages.get(2).getMessageId(), third).get();
        line("commit", end(third, true));
        consumer.close();
        Consumer<byte[]> back = consumer(topic("cumulative"), SubscriptionType.Exclusive);
        line("left", next(back) + " " + next(back));
        back.close();
        producer.close();
    }

    static void time() throws Exception {
        section("time");
        Producer<byte[]> producer = producer(topic("time"), false);
        Consumer<byte[]> consumer = consumer(topic("time"), SubscriptionType.Shared);
        send(producer, null, "a");
        Message<byte[]> message = take(consumer, 1).get(0);
        Transaction txn = begin(2, TimeUnit.SECONDS);
        send(producer, txn, "never");
        consumer.acknowledgeAsync(message.getMessageId(), txn).get();
        send(producer, null, "b");
        line("while it is open", next(consumer));
        Thread.sleep(2500);
        List<String> came = values(take(consumer, 2));
        line("when it is over", new TreeSet<>(came) + " " + next(consumer));
        line("state", txn.getState());
        line("commit", end(txn, true));
        line("state", txn.getState());
        producer.close();
        consumer.close();
    }

    static void copy() throws Exception {
        section("consume and produce");
        Producer<byte[]> in = producer(topic("in"), false);
        Consumer<byte[]> source = consumer(topic("in"), SubscriptionType.Shared);
        Producer<byte[]> out = producer(topic("out"), true);
        Consumer<byte[]> result = consumer(topic("out"), SubscriptionType.Exclusive);
        for (int i = 0; i < 100; i++) {
            in.newMessage().value(("" + i).getBytes()).sendAsync();
        }
        in.flush();
        int copied = 0;
        int tries = 0;
        while (copied < 100) {
            Transaction txn = begin();
            int taken = 0;
            for (; taken < 10; taken++) {
                Message<byte[]> message = source.receive(3, TimeUnit.SECONDS);
                if (message == null) {
                    break;
                }
                out.newMessage(txn).value(message.getData()).sendAsync();
                source.acknowledgeAsync(message.getMessageId(), txn);
            }
            boolean commit = tries++ % 3 != 1;
            if (commit) {
                txn.commit().get();
                copied += taken;
            } else {
                txn.abort().get();
            }
        }
        List<String> values = values(take(result, 100));
        line("copied", values.size() + " " + new TreeSet<>(values).size() + " " + next(result));
        line("left", next(source));
        in.close();
        source.close();
        out.close();
        result.close();
    }

    static void readers() throws Exception {
        section("readers");
        Producer<byte[]> producer = producer(topic("read"), false);
        send(producer, null, "a");
        Reader<byte[]> reader = client.newReader().topic(topic("read")).startMessageId(MessageId.earliest).create();
        line("there is one", reader.hasMessageAvailable());
        reader.readNext(5, TimeUnit.SECONDS);
        line("no more", reader.hasMessageAvailable());
        Transaction txn = begin();
        send(producer, txn, "b");
        line("while one is open", reader.hasMessageAvailable());
        end(txn, false);
        line("when it is aborted", reader.hasMessageAvailable());
        txn = begin();
        send(producer, txn, "c");
        end(txn, true);
        line("when one is committed", reader.hasMessageAvailable());
        line("it is", new String(reader.readNext(5, TimeUnit.SECONDS).getData()));
        line("no more", reader.hasMessageAvailable());
        reader.close();
        producer.close();
    }

    static void administration() throws Exception {
        section("administration");
        String name = topic("admin");
        Producer<byte[]> producer = producer(name, false);
        Consumer<byte[]> consumer = consumer(name, SubscriptionType.Shared);
        send(producer, null, "a");
        Message<byte[]> message = take(consumer, 1).get(0);
        Transaction txn = begin();
        TxnID id = txn.getTxnID();
        send(producer, txn, "b");
        consumer.acknowledgeAsync(message.getMessageId(), txn).get();
        var transactions = admin.transactions();
        line("coordinators", transactions.listTransactionCoordinators().size()
                - transactions.getCoordinatorStats().size());
        TransactionCoordinatorStats stats = transactions.getCoordinatorStatsById((int) id.getMostSigBits());
        line("state", stats.state + " " + stats.ongoingTxnSize);
        TransactionMetadata metadata = transactions.getTransactionMetadata(id);
        line("metadata", metadata.status + " " + metadata.producedPartitions.keySet() + " "
                + metadata.ackedPartitions + " " + metadata.timeoutAt);
        line("id", metadata.txnId.equals(id.toString()));
        line("slow", transactions.getSlowTransactions(1, TimeUnit.HOURS).size() + " "
                + transactions.getSlowTransactionsByCoordinatorId(
                        (int) id.getMostSigBits(), 1, TimeUnit.MILLISECONDS).containsKey(id.toString()));
        TransactionBufferStats buffer = transactions.getTransactionBufferStats(name);
        line("buffer", buffer.state + " " + buffer.ongoingTxnSize);
        TransactionInBufferStats in = transactions.getTransactionInBufferStatsAsync(id, name).get();
        line("in buffer", in.aborted + " " + (in.startPosition != null));
        TransactionPendingAckStats acks = transactions.getPendingAckStats(name, "s");
        line("pending acks", acks.state + " " + acks.ongoingTxnSize);
        MessageIdImpl at = (MessageIdImpl) message.getMessageId();
        line("position", transactions.getPositionStatsInPendingAck(
                name, "s", at.getLedgerId(), at.getEntryId(), null).state);
        line("abort", value(() -> {
            transactions.abortTransaction(id);
            return null;
        }));
        line("it is over", value(() -> transactions.getTransactionMetadata(id)));
        line("commit", end(txn, true));
        line("again", next(consumer));
        TransactionInBufferStats gone = transactions.getTransactionInBufferStatsAsync(id, name).get();
        line("in buffer", gone.aborted + " " + (gone.startPosition != null));
        line("no such topic", value(() -> transactions.getTransactionBufferStats(topic("nowhere"))));
        line("no such coordinator", value(() -> transactions.getTransactionMetadata(new TxnID(3, 1L << 60))));
        producer.close();
        consumer.close();
    }

    public static void main(String[] arguments) throws Exception {
        prefix = arguments[2];
        client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true)
                .operationTimeout(10, TimeUnit.SECONDS).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
        messages();
        batches();
        for (SubscriptionType type : SubscriptionType.values()) {
            acknowledgements(type, false);
        }
        acknowledgements(SubscriptionType.Shared, true);
        acknowledgements(SubscriptionType.Exclusive, true);
        cumulative();
        time();
        copy();
        readers();
        administration();
        client.close();
        admin.close();
        System.exit(0);
    }
}
