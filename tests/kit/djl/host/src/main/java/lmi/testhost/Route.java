package lmi.testhost;

import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.QueryStringDecoder;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Which of the front end's functions a path asks for. There is one model, whatever the path calls it. */
record Route(Kind kind, String adapter, boolean update) {

    enum Kind {
        PING,
        PREDICT,
        ADAPTER
    }

    private static final Pattern PREDICT =
            Pattern.compile("/invocations|/predictions/.+|/models/[^/]+/invoke|/v1/chat/completions");
    private static final Pattern ADAPTER = Pattern.compile("(?:/models/[^/]+)?/adapters(?:/([^/]+)(/update)?)?");

    static Route of(FullHttpRequest request) {
        String path = new QueryStringDecoder(request.uri()).path();
        Matcher adapter = ADAPTER.matcher(path);
        if (path.equals("/ping")) {
            return new Route(Kind.PING, null, false);
        } else if (PREDICT.matcher(path).matches()) {
            return new Route(Kind.PREDICT, null, false);
        } else if (adapter.matches()) {
            return new Route(Kind.ADAPTER, adapter.group(1), adapter.group(2) != null);
        }
        throw new Front.BadRequestException(404, "Requested resource is not found, please refer to API document.");
    }
}
