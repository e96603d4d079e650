package lmi.testhost;

import ai.djl.inference.streaming.ChunkedBytesSupplier;
import ai.djl.modality.Input;
import ai.djl.modality.Output;
import ai.djl.ndarray.BytesSupplier;
import ai.djl.translate.TranslateException;
import ai.djl.util.JsonUtils;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpContent;
import io.netty.handler.codec.http.DefaultHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** HTTP on a free port of the loopback interface: requests become Inputs, Outputs become responses. */
final class Front {

    /** A request that the front end itself refuses; the name is part of the JSON that it sends. */
    static final class BadRequestException extends RuntimeException {
        private static final long serialVersionUID = 1L;
        final int code;

        BadRequestException(int code, String message) {
            super(message);
            this.code = code;
        }

        BadRequestException(String message) {
            this(400, message);
        }
    }

    private static final Logger LOGGER = LoggerFactory.getLogger(Front.class);
    private static final int MAX_REQUEST_BYTES = 64 * 1024 * 1024;
    private static final String REQUEST_ID = "x-request-id";

    private final Workers workers;
    private final int chunkTimeout;
    private final ExecutorService senders = Executors.newCachedThreadPool();

    /**
     * @param chunkTimeout seconds to wait for the next chunk of an answer before its connection is closed
     */
    Front(Workers workers, int chunkTimeout) {
        this.workers = workers;
        this.chunkTimeout = chunkTimeout;
    }

    /** Returns the port. */
    int listen() throws InterruptedException {
        ServerBootstrap server =
                new ServerBootstrap()
                        .group(new NioEventLoopGroup(1), new NioEventLoopGroup(2))
                        .channel(NioServerSocketChannel.class)
                        .option(ChannelOption.SO_BACKLOG, 1024)
                        .childOption(ChannelOption.TCP_NODELAY, true)
                        .childHandler(
                                new ChannelInitializer<SocketChannel>() {
                                    @Override
                                    protected void initChannel(SocketChannel channel) {
                                        channel.pipeline()
                                                .addLast(new HttpServerCodec())
                                                .addLast(new HttpObjectAggregator(MAX_REQUEST_BYTES))
                                                .addLast(new Connection());
                                    }
                                });
        InetSocketAddress free = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        return ((InetSocketAddress) server.bind(free).sync().channel().localAddress()).getPort();
    }

    private final class Connection extends SimpleChannelInboundHandler<FullHttpRequest> {

        private Input current;

        @Override
        protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
            String given = request.headers().get(REQUEST_ID);
            Answer answer = new Answer(context, given == null ? UUID.randomUUID().toString() : given);
            try {
                Route route = Route.of(request);
                switch (route.kind()) {
                    case PING -> answer.ping();
                    case PREDICT -> {
                        current = RequestParser.parse(request);
                        current.addProperty("requestId", answer.requestId);
                        predict(current, answer);
                    }
                    case ADAPTER -> {
                        if (!workers.option("enable_lora")) {
                            throw new BadRequestException("LoRA is not enabled.");
                        }
                        Adapters.Change change = Adapters.change(request, route, workers);
                        ask(change, answer);
                    }
                }
            } catch (RuntimeException e) {
                answer.error(e);
            }
        }

        /** As DJL Serving: what still waits in the queue is dropped, and Python is told nothing of what does not. */
        @Override
        public void channelInactive(ChannelHandlerContext context) {
            if (current != null) {
                current.setCancelled(true);
            }
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            LOGGER.warn("connection failed", cause);
            context.close();
        }
    }

    private void predict(Input input, Answer answer) {
        workers.submit(input)
                .thenAcceptAsync(answer::send, senders)
                .exceptionally(
                        error -> {
                            answer.error(error instanceof CompletionException ? error.getCause() : error);
                            return null;
                        });
    }

    /**
     * Code and message are all that DJL Serving passes on of a call about an adapter. In async mode the Output that it
     * has at once is not filled yet: it says 200 and OK, whatever comes.
     */
    private void ask(Adapters.Change change, Answer answer) {
        workers.submit(change.input())
                .thenAcceptAsync(
                        output -> {
                            if (output.getCode() >= 300) {
                                throw new BadRequestException(output.getCode(), output.getMessage());
                            }
                            change.apply(workers);
                            answer.json(output.getCode(), Map.of("status", output.getMessage()));
                        },
                        senders)
                .exceptionally(
                        error -> {
                            answer.error(error instanceof CompletionException ? error.getCause() : error);
                            return null;
                        });
    }

    /** One response. */
    private final class Answer {

        private final ChannelHandlerContext context;
        private final String requestId;

        Answer(ChannelHandlerContext context, String requestId) {
            this.context = context;
            this.requestId = requestId;
        }

        void send(Output output) {
            BytesSupplier data = output.getData();
            if (data instanceof ChunkedBytesSupplier) {
                stream(output, (ChunkedBytesSupplier) data);
            } else {
                whole(output, data == null ? new byte[0] : data.getAsBytes());
            }
        }

        /**
         * Chunks as they come. The status is sent with the first chunk and not before: until then the engine may still
         * change it. An answer that is complete with its first chunk has a Content-Length instead.
         */
        private void stream(Output output, ChunkedBytesSupplier chunks) {
            try {
                byte[] chunk = chunks.nextChunk(chunkTimeout, TimeUnit.SECONDS);
                if (!chunks.hasNext()) {
                    whole(output, chunk == null ? new byte[0] : chunk);
                    return;
                }
                HttpResponse head = new DefaultHttpResponse(HttpVersion.HTTP_1_1, status(output));
                addHeaders(head, output);
                HttpUtil.setTransferEncodingChunked(head, true);
                context.writeAndFlush(head);
                context.writeAndFlush(new DefaultHttpContent(Unpooled.wrappedBuffer(chunk)));
                while (chunks.hasNext()) {
                    byte[] next = chunks.nextChunk(chunkTimeout, TimeUnit.SECONDS);
                    context.writeAndFlush(new DefaultHttpContent(Unpooled.wrappedBuffer(next)));
                }
                context.writeAndFlush(LastHttpContent.EMPTY_LAST_CONTENT);
            } catch (InterruptedException | IllegalStateException e) {
                LOGGER.warn("[{}] no chunk in {} s, closing the connection", requestId, chunkTimeout, e);
                context.disconnect();
            }
        }

        private void whole(Output output, byte[] body) {
            FullHttpResponse response =
                    new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status(output), Unpooled.wrappedBuffer(body));
            addHeaders(response, output);
            finish(response);
        }

        /** The message becomes the reason phrase; netty refuses one that holds a line break, which makes it a 500. */
        private HttpResponseStatus status(Output output) {
            return output.getCode() == 200
                    ? HttpResponseStatus.OK
                    : new HttpResponseStatus(output.getCode(), output.getMessage());
        }

        private void addHeaders(HttpResponse response, Output output) {
            output.getProperties().forEach((name, value) -> response.headers().set(name, value));
            response.headers()
                    .set(REQUEST_ID, requestId)
                    .set("Pragma", "no-cache")
                    .set("Cache-Control", "no-cache; no-store, must-revalidate, private")
                    .set("Expires", "Thu, 01 Jan 1970 00:00:00 UTC")
                    .set("Connection", "keep-alive");
        }

        private void finish(FullHttpResponse response) {
            HttpUtil.setContentLength(response, response.content().readableBytes());
            if (response.status().code() >= 400) {
                response.headers().set("Connection", "close");
                context.writeAndFlush(response).addListener(ChannelFutureListener.CLOSE);
            } else {
                context.writeAndFlush(response);
            }
        }

        private void json(int code, Object value) {
            byte[] body = (JsonUtils.GSON_PRETTY.toJson(value) + '\n').getBytes(StandardCharsets.UTF_8);
            FullHttpResponse response =
                    new DefaultFullHttpResponse(
                            HttpVersion.HTTP_1_1, HttpResponseStatus.valueOf(code), Unpooled.wrappedBuffer(body));
            addHeaders(response, new Output());
            response.headers().set("Content-Type", "application/json");
            finish(response);
        }

        void ping() {
            boolean healthy = workers.isHealthy();
            json(healthy ? 200 : 500, Map.of("model", Map.of("status", healthy ? "Healthy" : "FAILED")));
        }

        void error(Throwable error) {
            int code;
            if (error instanceof BadRequestException) {
                code = ((BadRequestException) error).code;
            } else if (error instanceof TranslateException) {
                code = 400;
            } else if (error instanceof Workers.WlmException) {
                code = 503;
            } else {
                code = 500;
            }
            LOGGER.warn("[{}] {}", requestId, code, error);
            Map<String, Object> body = new LinkedHashMap<>();
            body.put("code", code);
            body.put("type", error.getClass().getSimpleName());
            body.put("message", Settings.rootCause(error).getMessage());
            json(code, body);
        }
    }
}
