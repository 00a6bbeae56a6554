import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.FileReader;
import java.io.FileWriter;
import java.io.PrintWriter;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's engine that writes what it sends to a file, one JSON object a record with its offset, and stops.
 *
 * Arguments: its properties, the file, after how many records to stop, and after how many seconds without one, counted
 * from the first; a heartbeat is none. The process ends at once, as a kill does, when the offset of the last record has
 * been stored; or, when nothing more comes, as an orderly stop does.
 */
public final class Recorder {
    private static final long START_SECONDS = 200;
    private static volatile long last = System.nanoTime() + START_SECONDS * 1_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        PrintWriter output = new PrintWriter(new FileWriter(arguments[1], true), true);
        long most = Long.parseLong(arguments[2]);
        long idle = (long) (Double.parseDouble(arguments[3]) * 1e9);
        ObjectMapper json = new ObjectMapper();
        long[] count = {0};
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine =
            DebeziumEngine.create(Connect.class)
                .using(properties)
                .notifying((batch, committer) -> {
                    for (ChangeEvent<SourceRecord, SourceRecord> event : batch) {
                        SourceRecord record = event.value();
                        try {
                            output.println(json.writeValueAsString(shown(record)));
                        }
                        catch (java.io.IOException error) {
                            throw new RuntimeException(error);
                        }
                        committer.markProcessed(event);
                        if (!event.destination().startsWith("__debezium-heartbeat")) {
                            last = System.nanoTime();
                        }
                        if (++count[0] >= most) {
                            committer.markBatchFinished();
                            output.close();
                            Runtime.getRuntime().halt(0);
                        }
                    }
                    committer.markBatchFinished();
                })
                .using((success, message, error) -> {
                    output.close();
                    if (error != null) {
                        error.printStackTrace();
                    }
                    Runtime.getRuntime().halt(success ? 0 : 1);
                })
                .build();
        Thread watch = new Thread(() -> {
            while (System.nanoTime() - last < idle) {
                try {
                    Thread.sleep(100);
                }
                catch (InterruptedException interrupted) {
                    return;
                }
            }
            try {
                engine.close();
            }
            catch (java.io.IOException | IllegalStateException error) {
                Runtime.getRuntime().halt(2);
            }
        });
        watch.setDaemon(true);
        watch.start();
        engine.run();
    }

    private static Map<String, Object> shown(SourceRecord record) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("topic", record.topic());
        found.put("key", plain(record.key()));
        found.put("value", plain(record.value()));
        found.put("offset", record.sourceOffset());
        return found;
    }

    private static Object plain(Object value) {
        if (!(value instanceof Struct)) {
            return value;
        }
        Struct struct = (Struct) value;
        Map<String, Object> found = new LinkedHashMap<>();
        for (Field field : struct.schema().fields()) {
            found.put(field.name(), plain(struct.get(field)));
        }
        return found;
    }
}
