package lmi.testhost;

import ai.djl.util.JsonUtils;
import ai.djl.util.cuda.CudaUtils;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * What DJL Serving 0.36 makes of a model's properties before its engine sees them: where each comes from is said beside
 * it. {@code tests/model/options/test_host_options.py} has the same list for the handler.
 */
final class Added {

    /** What follows OPTION_ becomes lower case only if it is all capitals; OPTION_pythonExecutable keeps its case. */
    private static final Pattern CAPITALS = Pattern.compile("[A-Z_\\d]+");

    private static final Pattern GENERATES = Pattern.compile(".*(ForCausalLM|LMHeadModel|ForConditionalGeneration)");

    private final Properties properties;
    private final Map<String, String> environment;

    private Added(Properties properties, Map<String, String> environment) {
        this.properties = properties;
        this.environment = environment;
    }

    /** Puts it into the properties, which are those of serving.properties. */
    static void to(Properties properties, Path modelDir, Map<String, String> environment) throws IOException {
        Added added = new Added(properties, environment);
        added.variables();
        added.sageMaker();
        JsonObject config = config(modelDir, properties.getProperty("option.model_id"));
        if (config != null) {
            added.recommended(config);
        }
        added.batches();
    }

    /** ModelInfo.loadServingProperties, and ModelInfo.initialize for the number of workers: the file goes first. */
    private void variables() {
        environment.forEach(
                (variable, value) -> {
                    if (variable.startsWith("OPTION_") && !value.isEmpty()) {
                        properties.putIfAbsent(key(name(variable, "OPTION_")), value);
                    } else if (variable.startsWith("ARGS_") && !value.isEmpty()) {
                        properties.putIfAbsent(name(variable, "ARGS_"), value);
                    }
                });
        copy("SERVING_MAX_WORKERS", "maxWorkers");
        copy("SERVING_MIN_WORKERS", "minWorkers");
    }

    private void copy(String variable, String property) {
        if (environment.get(variable) != null) {
            properties.putIfAbsent(property, environment.get(variable));
        }
    }

    /** SageMakerCompatibility.applyModelCompatibility: before the file. */
    private void sageMaker() {
        Map<String, String> translated =
                Map.of(
                        "minWorkers", "SAGEMAKER_NUM_MODEL_WORKERS",
                        "maxWorkers", "SAGEMAKER_NUM_MODEL_WORKERS",
                        "option.model_loading_timeout", "SAGEMAKER_STARTUP_TIMEOUT",
                        "option.predict_timeout", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS");
        translated.forEach(
                (property, variable) -> {
                    if (environment.get(variable) != null) {
                        properties.setProperty(property, environment.get(variable));
                    }
                });
    }

    /** LmiConfigRecommender.configure: for a model whose config.json was found. */
    private void recommended(JsonObject config) {
        rollingBatch(config);
        String mode = properties.getProperty("option.rolling_batch", "");
        if (mode.equals("trtllm")) {
            properties.setProperty("option.mpi_mode", "true");
            properties.putIfAbsent("option.max_num_tokens", "16384");
        }
        String stages = environment.getOrDefault("PIPELINE_PARALLEL_DEGREE", "1");
        properties.putIfAbsent("option.pipeline_parallel_degree", stages);
        int stagesUsed = Integer.parseInt(properties.getProperty("option.pipeline_parallel_degree"));
        String degree = environment.getOrDefault("TENSOR_PARALLEL_DEGREE", "max");
        if (!degree.equals("max")) {
            properties.putIfAbsent("option.tensor_parallel_degree", degree);
        } else if (CudaUtils.getGpuCount() > 0) {
            String devices = String.valueOf(CudaUtils.getGpuCount() / stagesUsed);
            properties.putIfAbsent("option.tensor_parallel_degree", devices);
        }
        boolean large = mode.equals("vllm") || mode.equals("trtllm");
        properties.putIfAbsent("option.max_rolling_batch_size", large ? "256" : "32");
        if (config.has("peft_type")) {
            properties.setProperty("option.is_peft_model", "true");
        }
        for (String single : new String[] {"option.enable_lora", "option.enable_stateful_sessions"}) {
            if (Boolean.parseBoolean(properties.getProperty(single))) {
                properties.setProperty("load_on_devices", "0");
                properties.setProperty("maxWorkers", "1");
            }
        }
    }

    /** LmiConfigRecommender.setRollingBatch. */
    private void rollingBatch(JsonObject config) {
        String mode = properties.getProperty("option.rolling_batch", "auto");
        if (Settings.integer(properties, "batch_size", 1) > 1) {
            mode = "disable";
        } else if (mode.equals("lmi-dist")) {
            mode = "vllm";
            properties.setProperty("option.mpi_mode", "false");
        } else if (mode.equals("auto")) {
            mode = "disable";
            String features = environment.getOrDefault("SERVING_FEATURES", "");
            if (generates(config) && (features.contains("vllm") || features.contains("trtllm"))) {
                properties.setProperty("option.async_mode", "true");
            }
        }
        properties.setProperty("option.rolling_batch", mode);
    }

    private static boolean generates(JsonObject config) {
        Stream<String> listed =
                config.has("architectures")
                        ? config.getAsJsonArray("architectures").asList().stream().map(JsonElement::getAsString)
                        : Stream.empty();
        Stream<String> mapped =
                config.has("auto_map") ? config.getAsJsonObject("auto_map").keySet().stream() : Stream.empty();
        return Stream.concat(listed, mapped).anyMatch(name -> GENERATES.matcher(name).matches());
    }

    /** ModelInfo.configPerModelSettings and ModelInfo.load. */
    private void batches() {
        if (properties.containsKey("max_dynamic_batch_size")) {
            properties.putIfAbsent("batch_size", properties.getProperty("max_dynamic_batch_size"));
        }
        if (Settings.integer(properties, "batch_size", 1) > 1) {
            properties.putIfAbsent("batchifier", "stack");
        }
    }

    /** What the model's folder says, or that of option.model_id; null if there is no such file, or it is no object. */
    private static JsonObject config(Path modelDir, String modelId) throws IOException {
        for (String name : new String[] {"config.json", "adapter_config.json", "model_index.json"}) {
            for (Path folder : new Path[] {modelDir, modelId == null ? modelDir : modelDir.resolve(modelId)}) {
                if (Files.isRegularFile(folder.resolve(name))) {
                    return JsonUtils.GSON.fromJson(Files.readString(folder.resolve(name)), JsonObject.class);
                }
            }
        }
        return null;
    }

    private static String name(String variable, String prefix) {
        String name = variable.substring(prefix.length());
        return CAPITALS.matcher(name).matches() ? name.toLowerCase(Locale.ROOT) : name;
    }

    private static String key(String option) {
        return switch (option) {
            case "engine" -> "engine";
            case "entrypoint" -> "option.entryPoint";
            default -> "option." + option;
        };
    }
}
