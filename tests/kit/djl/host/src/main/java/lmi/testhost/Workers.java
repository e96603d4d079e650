package lmi.testhost;

import ai.djl.MalformedModelException;
import ai.djl.engine.EngineException;
import ai.djl.inference.Predictor;
import ai.djl.modality.Input;
import ai.djl.modality.Output;
import ai.djl.repository.zoo.Criteria;
import ai.djl.repository.zoo.ModelNotFoundException;
import ai.djl.repository.zoo.ZooModel;
import ai.djl.translate.NoopServingTranslatorFactory;
import ai.djl.translate.TranslateException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.TimeUnit;

/**
 * The workers of a model, as many as minWorkers says: each is one thread that takes jobs from the queue, which all of
 * them have in common, and gives them to one predictor, hence to one Python process.
 *
 * <p>That is DJL Serving's shape in every mode. In rolling batch and async mode a prediction only hands its Input over
 * and returns an Output whose content arrives later, so one thread serves any number of connections. It must be one: a
 * full rolling batch that has room again wakes a single waiter a step, however much room there is.
 *
 * <p>An exception of the translation answers its jobs and the worker goes on; any other ends it. A new one is started by
 * the next request where none is left, which is refused, and else by one that finds more than two batches waiting
 * (WorkLoadManager.runJob).
 */
final class Workers {

    /** 503: what DJL Serving calls a failure of its workload manager. The names are part of the JSON it sends. */
    static class WlmException extends Exception {
        private static final long serialVersionUID = 1L;

        WlmException(String message) {
            super(message);
        }
    }

    static final class WlmCapacityException extends WlmException {
        private static final long serialVersionUID = 1L;

        WlmCapacityException(String message) {
            super(message);
        }
    }

    private record Job(Input input, CompletableFuture<Output> result) {}

    private static final Logger LOGGER = LoggerFactory.getLogger(Workers.class);

    private final Map<String, Input> adapters = new ConcurrentSkipListMap<>();
    private final Properties properties;
    private final ZooModel<Input, Output> model;
    private final BlockingQueue<Job> queue;
    private final int batchSize;
    private final int maxBatchDelay;
    private final int number;
    private final Set<Predictor<Input, Output>> running = ConcurrentHashMap.newKeySet();

    Workers(Path modelDir, Properties properties) throws ModelNotFoundException, MalformedModelException, IOException {
        this.properties = properties;
        Criteria.Builder<Input, Output> criteria =
                Criteria.builder()
                        .setTypes(Input.class, Output.class)
                        .optModelPath(modelDir)
                        .optEngine("Python")
                        .optTranslatorFactory(new NoopServingTranslatorFactory());
        for (String key : properties.stringPropertyNames()) {
            String value = properties.getProperty(key);
            if (key.startsWith("option.")) {
                criteria.optOption(key.substring("option.".length()), value);
            } else {
                criteria.optArgument(key, value);
            }
        }
        batchSize = Settings.integer(properties, "batch_size", 1);
        model = criteria.build().loadModel();
        queue = new ArrayBlockingQueue<>(Settings.integer(properties, "job_queue_size", 1000));
        maxBatchDelay = Settings.integer(properties, "max_batch_delay", 100);
        int least = Settings.integer(properties, "minWorkers", 1);
        number = Math.min(least, Settings.integer(properties, "maxWorkers", least));
    }

    /** Starts the Python processes one after the other, and waits until each has its model initialised. */
    synchronized void start() throws TranslateException {
        while (running.size() < number) {
            Predictor<Input, Output> started = model.newPredictor();
            try {
                for (Input adapter : adapters.values()) {
                    Output output = started.predict(adapter);
                    if (output.getCode() >= 300) {
                        throw new EngineException("Failed to register adapter: " + output.getMessage());
                    }
                }
            } catch (TranslateException | RuntimeException e) {
                started.close();
                throw e;
            }
            running.add(started);
            Host.daemon("worker", () -> run(started));
        }
    }

    boolean option(String name) {
        return Boolean.parseBoolean(properties.getProperty("option." + name));
    }

    /** Its registration, or null. */
    Input adapter(String name) {
        return adapters.get(name);
    }

    /** An adapter that every later start of the worker registers again. */
    void keepAdapter(String name, Input registration) {
        adapters.put(name, registration);
    }

    void dropAdapter(String name) {
        adapters.remove(name);
    }

    /** DJL counts the Python processes that failed; beyond retry_threshold the model is given up for good. */
    boolean isHealthy() {
        String variable = System.getenv("SERVING_RETRY_THRESHOLD");
        int otherwise = variable == null ? 0 : Integer.parseInt(variable);
        return model.intProperty("failed", 0) <= model.intProperty("retry_threshold", otherwise);
    }

    CompletableFuture<Output> submit(Input input) {
        CompletableFuture<Output> result = new CompletableFuture<>();
        int alive = running.size();
        if (!isHealthy()) {
            result.completeExceptionally(new WlmException("Model is not ready: " + model.getName()));
        } else if (alive == 0 || !queue.offer(new Job(input, result))) {
            String message = "Worker queue capacity exceeded for model: " + model.getName();
            result.completeExceptionally(new WlmCapacityException(message));
        }
        if (alive == 0 || alive < number && queue.size() > 2 * batchSize) {
            Host.daemon("restart", this::restart);
        }
        return result;
    }

    private void restart() {
        try {
            start();
        } catch (TranslateException | RuntimeException e) {
            LOGGER.error("a worker did not start again", e);
        }
    }

    private void run(Predictor<Input, Output> mine) {
        List<Job> jobs = List.of();
        try {
            while (true) {
                jobs = nextBatch();
                jobs.removeIf(job -> job.input().isCancelled());
                if (!jobs.isEmpty()) {
                    predict(mine, jobs);
                }
            }
        } catch (InterruptedException e) {
            LOGGER.info("worker interrupted");
        } catch (RuntimeException e) {
            LOGGER.error("the worker ends", e);
            running.remove(mine);
            mine.close();
            WlmException answer = new WlmException(e.getMessage());
            jobs.forEach(job -> job.result().completeExceptionally(answer));
        }
    }

    private static void predict(Predictor<Input, Output> predictor, List<Job> jobs) {
        try {
            List<Output> outputs = predictor.batchPredict(jobs.stream().map(Job::input).toList());
            for (int i = 0; i < jobs.size(); ++i) {
                jobs.get(i).result().complete(outputs.get(i));
            }
        } catch (TranslateException e) {
            LOGGER.warn("failed to predict", e);
            jobs.forEach(job -> job.result().completeExceptionally(e));
        }
    }

    /** The first job at once, then others until the batch is full or max_batch_delay (ms) after it is over. */
    private List<Job> nextBatch() throws InterruptedException {
        List<Job> jobs = new ArrayList<>(batchSize);
        jobs.add(queue.take());
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(maxBatchDelay);
        while (jobs.size() < batchSize) {
            Job job = queue.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (job == null) {
                break;
            }
            jobs.add(job);
        }
        return jobs;
    }
}
