package lmi.testhost;

import ai.djl.modality.Input;

import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.QueryStringDecoder;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * The calls of the LoRA handlers: from requests, and from the adapters/ folder of the model directory.
 *
 * <p>As DJL Serving's: an alias only where a header gives one, in messages; each parameter once more as content; and only
 * what the host itself knows is asked of the workers, but for a registration.
 */
final class Adapters {

    /**
     * @param input what the worker is asked
     * @param applied what the host remembers once the worker agreed
     */
    record Change(Input input, Consumer<Workers> applied) {
        void apply(Workers workers) {
            applied.accept(workers);
        }
    }

    private Adapters() {}

    /** POST adapters?name=&src=, POST adapters/NAME/update, DELETE adapters/NAME. */
    static Change change(FullHttpRequest request, Route route, Workers workers) {
        String alias = request.headers().get("X-Amzn-SageMaker-Adapter-Alias");
        Map<String, String> parameters = new HashMap<>();
        new QueryStringDecoder(request.uri())
                .parameters()
                .forEach((name, values) -> parameters.put(name, values.get(0)));
        if (route.adapter() == null && request.method().equals(HttpMethod.POST)) {
            String name = required(parameters, "name");
            Input input = input("register_adapter", name, alias, required(parameters, "src"), parameters);
            return new Change(input, applied -> keepNew(applied, name, input));
        } else if (route.update() && request.method().equals(HttpMethod.POST)) {
            String src = parameters.getOrDefault("src", known(workers, route).getProperty("src", null));
            Input kept = input("register_adapter", route.adapter(), alias, src, parameters);
            Input input = input("update_adapter", route.adapter(), alias, src, parameters);
            return new Change(input, applied -> applied.keepAdapter(route.adapter(), kept));
        } else if (route.adapter() != null && request.method().equals(HttpMethod.DELETE)) {
            known(workers, route);
            Input input = input("unregister_adapter", route.adapter(), alias, null, Map.of());
            return new Change(input, applied -> applied.dropAdapter(route.adapter()));
        }
        throw new Front.BadRequestException(405, "Request method is not allowed, please refer to API document.");
    }

    /** One registration for each folder in adapters/, run before the first request. */
    static void keepFolder(Path modelDir, Workers workers) throws IOException {
        Path folder = modelDir.resolve("adapters");
        if (!Files.isDirectory(folder)) {
            return;
        }
        try (Stream<Path> entries = Files.list(folder)) {
            List<Path> sources = entries.sorted().toList();
            for (Path source : sources) {
                String name = source.getFileName().toString();
                workers.keepAdapter(name, input("register_adapter", name, null, source.toAbsolutePath().toString(), Map.of()));
            }
        }
    }

    /** DJL Serving finds out that it has the name only when the worker has done its part. */
    private static void keepNew(Workers workers, String name, Input registration) {
        if (workers.adapter(name) != null) {
            throw new Front.BadRequestException(409, "The adapter " + name + " is registered already");
        }
        workers.keepAdapter(name, registration);
    }

    private static Input known(Workers workers, Route route) {
        Input registration = workers.adapter(route.adapter());
        if (registration == null) {
            throw new Front.BadRequestException(404, "The adapter " + route.adapter() + " was not found");
        }
        return registration;
    }

    private static Input input(
            String handler, String name, String alias, String src, Map<String, String> options) {
        Input input = new Input();
        input.addProperty("handler", handler);
        input.addProperty("name", name);
        input.addProperty("alias", alias);
        if (src != null) {
            input.addProperty("src", src);
        }
        options.forEach((key, value) -> input.add(key, value));
        return input;
    }

    private static String required(Map<String, String> parameters, String name) {
        String value = parameters.get(name);
        if (value == null) {
            throw new Front.BadRequestException("Parameter " + name + " is required.");
        }
        return value;
    }
}
