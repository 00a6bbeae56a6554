// Delta's log on S3, each entry created by a conditional PUT: only where there is none, whoever else writes.
// Compiled when it is needed, by the compiler that Spark brings for its own code (cdc_core/spark/s3_log_store.py).

package wal2lake;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

public class S3ConditionalLogStore extends HadoopFileSystemLogStore {

    public S3ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        FileSystem files = path.getFileSystem(configuration);
        FSDataOutputStream stream;
        if (overwrite.booleanValue()) {
            stream = files.create(path, true);
        } else {
            FSDataOutputStreamBuilder builder = files.createFile(path);
            // A file system that does not know the condition refuses it here.
            builder.must("fs.option.create.conditional.overwrite", "true");
            // Janino knows no type parameters, hence the cast.
            stream = (FSDataOutputStream) builder.build();
        }
        boolean written = false;
        try {
            while (actions.hasNext()) {
                stream.write((((String) actions.next()) + "\n").getBytes("UTF-8"));
            }
            written = true;
        } finally {
            if (!written) {
                stream.abort();
            }
        }
        try {
            stream.close();
        } catch (IOException error) {
            if (!overwrite.booleanValue() && isRefused(error)) {
                throw new java.nio.file.FileAlreadyExistsException(path.toString());
            }
            throw error;
        }
    }

    public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
        return Boolean.FALSE;
    }

    private static boolean isRefused(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            String name = cause.getClass().getSimpleName();
            String text = String.valueOf(cause.getMessage());
            if (name.equals("RemoteFileChangedException") || name.equals("FileAlreadyExistsException")
                    || text.indexOf("Status Code: 412") >= 0) {
                return true;
            }
        }
        return false;
    }
}
