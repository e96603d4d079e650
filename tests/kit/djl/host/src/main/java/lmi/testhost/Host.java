package lmi.testhost;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/**
 * DJL's own Python engine with its workers, behind a front end that behaves as DJL Serving's.
 *
 * <pre>
 * socket -> Front (HTTP <-> Input, Output) -> Workers (queue, batches) -> Predictor (DJL) -> Python worker process
 * </pre>
 *
 * <p>Usage: {@code Host MODEL_DIR [KEY=VALUE ...]}; the pairs are put over those of serving.properties. Prints
 * {@code HOST READY port=N} once the model is loaded, or {@code HOST FAILED reason} and exits with 1. Ends when its
 * standard input ends, so that it never outlives the process that started it.
 */
public final class Host {

    private Host() {}

    public static void main(String[] args) throws Exception {
        Path modelDir = Path.of(args[0]).toAbsolutePath();
        Properties properties = servingProperties(modelDir);
        for (int i = 1; i < args.length; ++i) {
            String[] pair = args[i].split("=", 2);
            properties.setProperty(pair[0], pair[1]);
        }
        Added.to(properties, modelDir, System.getenv());
        Runtime.getRuntime().addShutdownHook(new Thread(Host::killDescendants));
        daemon("stdin", Host::exitWithStandardInput);
        try {
            Workers workers = new Workers(modelDir, properties);
            if (workers.option("enable_lora")) {
                Adapters.keepFolder(modelDir, workers);
            }
            workers.start();
            Front front = new Front(workers, Integer.parseInt(System.getenv().getOrDefault("SERVING_CHUNKED_READ_TIMEOUT", "120")));
            System.out.println("HOST READY port=" + front.listen());
        } catch (Exception e) {
            e.printStackTrace();
            System.out.println("HOST FAILED " + Settings.rootCause(e).getMessage());
            System.exit(1);
        }
    }

    static Thread daemon(String name, Runnable body) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static Properties servingProperties(Path modelDir) throws IOException {
        Properties properties = new Properties();
        Path file = modelDir.resolve("serving.properties");
        if (Files.isRegularFile(file)) {
            try (InputStream in = Files.newInputStream(file)) {
                properties.load(in);
            }
        }
        return properties;
    }

    /** The Python worker and what it started. */
    private static void killDescendants() {
        ProcessHandle.current().descendants().forEach(ProcessHandle::destroyForcibly);
    }

    private static void exitWithStandardInput() {
        try {
            while (System.in.read() >= 0) {
                // what is written there has no meaning
            }
        } catch (IOException e) {
            // closed: the same as its end
        }
        System.exit(0);
    }
}
