package lmi.testhost;

import ai.djl.modality.Input;

import io.netty.buffer.ByteBufUtil;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.QueryStringDecoder;
import io.netty.handler.codec.http.multipart.Attribute;
import io.netty.handler.codec.http.multipart.DefaultHttpDataFactory;
import io.netty.handler.codec.http.multipart.FileUpload;
import io.netty.handler.codec.http.multipart.HttpPostRequestDecoder;
import io.netty.handler.codec.http.multipart.InterfaceHttpData;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;

/** A request as Python sees it: query parameters and the body as content, headers as properties. */
final class RequestParser {

    private static final String CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes";

    private RequestParser() {}

    static Input parse(FullHttpRequest request) {
        Input input = new Input();
        new QueryStringDecoder(request.uri())
                .parameters()
                .forEach((name, values) -> values.forEach(value -> input.add(name, value)));
        for (Map.Entry<String, String> header : request.headers().entries()) {
            if (CUSTOM_ATTRIBUTES.equalsIgnoreCase(header.getKey())) {
                addAttributes(input, header.getValue());
            } else {
                input.addProperty(header.getKey(), header.getValue());
            }
        }
        CharSequence type = HttpUtil.getMimeType(request);
        if (HttpPostRequestDecoder.isMultipart(request)
                || type != null && "application/x-www-form-urlencoded".contentEquals(type)) {
            addForm(input, request);
        } else {
            input.add("data", ByteBufUtil.getBytes(request.content()));
        }
        if (input.getProperties().containsKey("handler")) {
            throw new Front.BadRequestException("The handler can't be overridden in a request");
        }
        return input;
    }

    /** {@code k=v;k=v}: DJL Serving splits this header at semicolons; what has no equals sign is dropped. */
    private static void addAttributes(Input input, String attributes) {
        for (String attribute : attributes.split(";")) {
            String[] pair = attribute.split("=", 2);
            if (pair.length == 2) {
                input.addProperty(pair[0].trim(), pair[1].trim());
            }
        }
    }

    private static void addForm(Input input, FullHttpRequest request) {
        HttpPostRequestDecoder form = new HttpPostRequestDecoder(new DefaultHttpDataFactory(true), request);
        try {
            for (InterfaceHttpData field : form.getBodyHttpDatas()) {
                if (field instanceof Attribute) {
                    input.add(field.getName(), ((Attribute) field).get());
                } else if (field instanceof FileUpload) {
                    input.add(field.getName(), ((FileUpload) field).get());
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } finally {
            form.destroy();
        }
    }
}
