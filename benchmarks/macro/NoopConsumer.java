import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's engine with a consumer that does nothing but count: arguments are its properties and how many records to wait for.
 *
 * Prints the seconds from the first batch of records to the last, and from the engine's start to the last.
 */
public final class NoopConsumer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        long expected = Long.parseLong(arguments[1]);
        AtomicLong records = new AtomicLong();
        AtomicLong first = new AtomicLong();
        long started = System.nanoTime();
        DebeziumEngine<io.debezium.engine.ChangeEvent<SourceRecord, SourceRecord>> engine =
            DebeziumEngine.create(Connect.class)
                .using(properties)
                .notifying((batch, committer) -> {
                    first.compareAndSet(0, System.nanoTime());
                    if (records.addAndGet(batch.size()) >= expected) {
                        long now = System.nanoTime();
                        System.out.printf(
                            java.util.Locale.ROOT, "records %d read %.3f all %.3f%n",
                            records.get(), (now - first.get()) / 1e9, (now - started) / 1e9);
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
}
