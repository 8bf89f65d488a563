// The broker's side of scripts/kafka_interop.sh: Kafka's own clients and its dump tool, driven by
// commands on standard input, a line each, so that one JVM does many.
//
//   create TOPIC PARTITIONS [KEY=VALUE ...]   make a topic
//   consume TOPIC FILE [committed]            every record, as `ringlog consume --json` prints it
//   offsets QUESTIONS FILE                    answers "topic partition time" lines; -1 latest,
//                                             -2 earliest, -3 max
//   produce TOPIC PARTITION ROUND             each codec, idempotent and not, with headers
//   transactions TOPIC PARTITION ROUND        one that commits, one that aborts
//   delete TOPIC PARTITION OFFSET             delete records before it
//   dump OUT [FLAG ...] -- FILE ...           DumpLogSegments, its standard and error output

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Interop {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private final String bootstrap;
    private Admin admin;

    private Interop(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        Interop interop = new Interop(args[0]);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.isBlank()) {
                interop.run(line.trim().split(" +"));
            }
        }
        if (interop.admin != null) {
            interop.admin.close(Duration.ZERO);
        }
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "create" -> create(words);
            case "consume" -> consume(words[1], Path.of(words[2]), words.length > 3);
            case "offsets" -> offsets(Path.of(words[1]), Path.of(words[2]));
            case "produce" -> produce(partition(words), Integer.parseInt(words[3]));
            case "transactions" -> transactions(partition(words), Integer.parseInt(words[3]));
            case "delete" -> delete(partition(words), Long.parseLong(words[3]));
            case "dump" -> dump(words);
            default -> throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static TopicPartition partition(String[] words) {
        return new TopicPartition(words[1], Integer.parseInt(words[2]));
    }

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        }
        return admin;
    }

    private void create(String[] words) throws Exception {
        Map<String, String> configs = new HashMap<>();
        for (String word : Arrays.copyOfRange(words, 3, words.length)) {
            int at = word.indexOf('=');
            configs.put(word.substring(0, at), word.substring(at + 1));
        }
        NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1);
        admin().createTopics(List.of(topic.configs(configs))).all().get();
    }

    private void delete(TopicPartition partition, long offset) throws Exception {
        Map<TopicPartition, RecordsToDelete> what =
            Map.of(partition, RecordsToDelete.beforeOffset(offset));
        admin().deleteRecords(what).all().get();
    }

    private void consume(String topic, Path file, boolean committed) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        properties.put("enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                 properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             BufferedWriter out = Files.newBufferedWriter(file)) {
            int count = consumer.partitionsFor(topic).size();
            for (int index = 0; index < count; index++) {
                whole(consumer, new TopicPartition(topic, index), out);
            }
        }
    }

    /** From the log's start to where it ends now. */
    private static void whole(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition,
            BufferedWriter out) throws Exception {
        List<TopicPartition> one = List.of(partition);
        consumer.assign(one);
        consumer.seekToBeginning(one);
        long end = consumer.endOffsets(one).get(partition);
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        StringBuilder line = new StringBuilder();
        while (consumer.position(partition) < end) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(partition + ": stuck at offset "
                    + consumer.position(partition) + " of " + end);
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                line.setLength(0);
                json(line, record);
                out.append(line).append('\n');
            }
        }
    }

    private static void json(StringBuilder to, ConsumerRecord<byte[], byte[]> record) {
        to.append("{\"partition\":").append(record.partition());
        to.append(",\"offset\":").append(record.offset());
        to.append(",\"timestamp\":").append(record.timestamp());
        to.append(",\"key\":");
        bytes(to, record.key());
        to.append(",\"value\":");
        bytes(to, record.value());
        to.append(",\"headers\":[");
        String between = "";
        for (Header header : record.headers()) {
            to.append(between).append("{\"key\":");
            bytes(to, header.key().getBytes(StandardCharsets.UTF_8));
            to.append(",\"value\":");
            bytes(to, header.value());
            to.append('}');
            between = ",";
        }
        to.append("]}");
    }

    /** UTF-8 is a string, other bytes are base64, null is null. */
    private static void bytes(StringBuilder to, byte[] bytes) {
        if (bytes == null) {
            to.append("null");
            return;
        }
        try {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            string(to, StandardCharsets.UTF_8.newDecoder().decode(buffer).toString());
        } catch (CharacterCodingException notUtf8) {
            to.append("{\"base64\":\"").append(Base64.getEncoder().encodeToString(bytes));
            to.append("\"}");
        }
    }

    private static void string(StringBuilder to, String text) {
        to.append('"');
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            switch (c) {
                case '"' -> to.append("\\\"");
                case '\\' -> to.append("\\\\");
                case '\b' -> to.append("\\b");
                case '\f' -> to.append("\\f");
                case '\n' -> to.append("\\n");
                case '\r' -> to.append("\\r");
                case '\t' -> to.append("\\t");
                default -> {
                    if (c < ' ') {
                        to.append(String.format("\\u%04x", (int) c));
                    } else {
                        to.append(c);
                    }
                }
            }
        }
        to.append('"');
    }

    private void offsets(Path questions, Path file) throws Exception {
        try (BufferedWriter out = Files.newBufferedWriter(file)) {
            for (String question : Files.readAllLines(questions)) {
                String[] words = question.split(" ");
                TopicPartition partition =
                    new TopicPartition(words[0], Integer.parseInt(words[1]));
                OffsetSpec spec = switch (words[2]) {
                    case "-1" -> OffsetSpec.latest();
                    case "-2" -> OffsetSpec.earliest();
                    case "-3" -> OffsetSpec.maxTimestamp();
                    default -> OffsetSpec.forTimestamp(Long.parseLong(words[2]));
                };
                ListOffsetsResultInfo found = admin().listOffsets(Map.of(partition, spec))
                    .partitionResult(partition).get();
                out.append(words[0] + " " + words[1] + " " + words[2] + " " + found.offset() + " "
                    + found.timestamp() + "\n");
            }
        }
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("linger.ms", "20");
        properties.put("batch.size", "4000");
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static ProducerRecord<byte[], byte[]> record(TopicPartition to, long time, String key,
            String value) {
        byte[] keyBytes = key == null ? null : key.getBytes(StandardCharsets.UTF_8);
        byte[] valueBytes = value == null ? null : value.getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(to.topic(), to.partition(), time, keyBytes, valueBytes);
    }

    private void produce(TopicPartition to, int round) throws Exception {
        long now = System.currentTimeMillis();
        for (String codec : CODECS) {
            for (String idempotent : new String[] {"true", "false"}) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                try (KafkaProducer<byte[], byte[]> producer = producer(
                         Map.of("compression.type", codec, "enable.idempotence", idempotent))) {
                    for (int i = 0; i < 60; i++) {
                        String value = "round " + round + " " + codec + " " + idempotent + " " + i;
                        ProducerRecord<byte[], byte[]> record = record(to, now - 500 * (i % 7),
                            i % 5 == 0 ? null : "k" + i, i % 11 == 0 ? null : value.repeat(8));
                        if (i % 3 == 0) {
                            record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                            record.headers().add("codec", null);
                            record.headers().add("", new byte[] {0, -1, (byte) i});
                        }
                        sent.add(producer.send(record));
                    }
                }
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
            }
        }
    }

    private void transactions(TopicPartition to, int round) throws Exception {
        long now = System.currentTimeMillis();
        try (KafkaProducer<byte[], byte[]> producer =
                 producer(Map.of("transactional.id", "interop-" + to))) {
            producer.initTransactions();
            for (boolean commits : new boolean[] {true, false, true}) {
                producer.beginTransaction();
                for (int i = 0; i < 20; i++) {
                    producer.send(record(to, now, "t" + i, "round " + round + " " + commits));
                }
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
    }

    private static void dump(String[] words) throws Exception {
        int files = Arrays.asList(words).indexOf("--");
        List<String> flags = new ArrayList<>(Arrays.asList(words).subList(2, files));
        PrintStream out = System.out;
        PrintStream err = System.err;
        try (PrintStream to =
                 new PrintStream(new FileOutputStream(words[1], true), true, "UTF-8")) {
            System.setOut(to);
            System.setErr(to);
            for (String file : Arrays.asList(words).subList(files + 1, words.length)) {
                List<String> args = new ArrayList<>(List.of("--files", file));
                args.addAll(flags);
                try {
                    org.apache.kafka.tools.DumpLogSegments.main(args.toArray(new String[0]));
                } catch (Exception failed) {
                    to.println("EXCEPTION " + file + ": " + failed);
                }
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
    }
}
