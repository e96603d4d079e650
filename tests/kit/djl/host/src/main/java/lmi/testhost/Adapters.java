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

/** The calls of the LoRA handlers: from requests, and from the adapters/ folder of the model directory. */
final class Adapters {

    /**
     * @param input what the worker is asked
     * @param applied what the host remembers once the worker agreed
     */
    record Change(Input input, Consumer<Worker> applied) {
        void apply(Worker worker) {
            applied.accept(worker);
        }
    }

    private Adapters() {}

    /** POST adapters?name=&src=, POST adapters/NAME/update?src=, DELETE adapters/NAME. */
    static Change change(FullHttpRequest request, Route route) {
        Map<String, String> parameters = new HashMap<>();
        new QueryStringDecoder(request.uri())
                .parameters()
                .forEach((name, values) -> parameters.put(name, values.get(0)));
        if (route.adapter() == null && request.method().equals(HttpMethod.POST)) {
            String name = required(parameters, "name");
            Input input = input("register_adapter", name, required(parameters, "src"), parameters);
            return new Change(input, worker -> worker.keepAdapter(name, input));
        } else if (route.update() && request.method().equals(HttpMethod.POST)) {
            String src = required(parameters, "src");
            Input kept = input("register_adapter", route.adapter(), src, parameters);
            Input input = input("update_adapter", route.adapter(), src, parameters);
            return new Change(input, worker -> worker.keepAdapter(route.adapter(), kept));
        } else if (route.adapter() != null && request.method().equals(HttpMethod.DELETE)) {
            Input input = input("unregister_adapter", route.adapter(), null, Map.of());
            return new Change(input, worker -> worker.dropAdapter(route.adapter()));
        }
        throw new Front.BadRequestException(405, "Request method is not allowed, please refer to API document.");
    }

    /** One registration for each folder in adapters/, run before the first request. */
    static void keepFolder(Path modelDir, Worker worker) throws IOException {
        Path folder = modelDir.resolve("adapters");
        if (!Files.isDirectory(folder)) {
            return;
        }
        try (Stream<Path> entries = Files.list(folder)) {
            List<Path> sources = entries.sorted().toList();
            for (Path source : sources) {
                String name = source.getFileName().toString();
                worker.keepAdapter(name, input("register_adapter", name, source.toAbsolutePath().toString(), Map.of()));
            }
        }
    }

    private static Input input(String handler, String name, String src, Map<String, String> options) {
        Input input = new Input();
        input.addProperty("handler", handler);
        input.addProperty("name", name);
        input.addProperty("alias", name);
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
