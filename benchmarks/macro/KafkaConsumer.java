import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import java.io.FileReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;

/**
 * Debezium's engine into Kafka, as Kafka Connect does: its records through the converters of its properties to an
 * idempotent producer.
 *
 * Arguments: its properties, how many records to wait for, and the brokers. Prints the seconds from the first batch of
 * records to the acknowledgement of the last.
 */
public final class KafkaConsumer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        long expected = Long.parseLong(arguments[1]);
        Converter keys = (Converter) made(properties, "key.converter");
        Converter values = (Converter) made(properties, "value.converter");
        HeaderConverter headers = (HeaderConverter) made(properties, "header.converter");
        keys.configure(below(properties, "key.converter."), true);
        values.configure(below(properties, "value.converter."), false);
        headers.configure(below(properties, "header.converter."));
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", arguments[2], "acks", "all", "enable.idempotence", "true",
                "linger.ms", "5", "buffer.memory", "67108864"),
            new ByteArraySerializer(), new ByteArraySerializer());
        AtomicLong records = new AtomicLong();
        AtomicLong first = new AtomicLong();
        DebeziumEngine<io.debezium.engine.ChangeEvent<SourceRecord, SourceRecord>> engine =
            DebeziumEngine.create(Connect.class)
                .using(properties)
                .notifying((batch, committer) -> {
                    first.compareAndSet(0, System.nanoTime());
                    Future<?> last = null;
                    for (var event : batch) {
                        SourceRecord one = event.value();
                        var made = new ProducerRecord<byte[], byte[]>(one.topic(),
                            keys.fromConnectData(one.topic(), one.keySchema(), one.key()),
                            values.fromConnectData(one.topic(), one.valueSchema(), one.value()));
                        for (Header header : one.headers()) {
                            made.headers().add(header.key(),
                                headers.fromConnectHeader(one.topic(), header.key(), header.schema(), header.value()));
                        }
                        last = producer.send(made);
                    }
                    if (records.addAndGet(batch.size()) >= expected) {
                        try {
                            last.get();
                        } catch (java.util.concurrent.ExecutionException error) {
                            throw new RuntimeException(error);
                        }
                        producer.flush();
                        System.out.printf(java.util.Locale.ROOT, "records %d read %.3f%n",
                            records.get(), (System.nanoTime() - first.get()) / 1e9);
                        System.out.flush();
                        Runtime.getRuntime().halt(0);
                    }
                    committer.markBatchFinished();
                })
                .using((success, message, error) -> {
                    System.err.println("the engine ended: " + message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    Runtime.getRuntime().halt(1);
                })
                .build();
        engine.run();
    }

    private static Object made(Properties properties, String name) throws Exception {
        return Class.forName(properties.getProperty(name)).getDeclaredConstructor().newInstance();
    }

    private static Map<String, Object> below(Properties properties, String prefix) {
        Map<String, Object> found = new HashMap<>();
        for (String name : properties.stringPropertyNames()) {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), properties.getProperty(name));
            }
        }
        return found;
    }
}
