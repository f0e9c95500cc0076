import com.wiredtiger.db.Connection;
import com.wiredtiger.db.Cursor;
import com.wiredtiger.db.SearchStatus;
import com.wiredtiger.db.Session;
import com.wiredtiger.db.WiredTigerRollbackException;
import com.wiredtiger.db.wiredtiger;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB's side of WiredTiger: one connection for all threads, a session and a cursor for each.
 *
 * <p>Properties: wiredtiger.folder; wiredtiger.config; wiredtiger.warm, to read all that there is before the
 * first operation and say how long that took, which is a part of YCSB's run time. A record is a list of names
 * and values. WiredTiger's own threads sync the journal and take checkpoints, as the configuration says.
 */
public final class YcsbWiredTiger extends DB {
    private static final String TABLE = "table:usertable";
    private static final String LAYOUT = "key_format=S,value_format=u,type=file,memory_page_max=10m,internal_page_max=4KB,"
        + "leaf_page_max=32KB,split_pct=90,leaf_value_max=64MB,checksum=on,allocation_size=4KB";
    private static Connection connection;
    private static int users;
    private Session session;
    private Cursor cursor;

    private interface Action {
        Status run() throws Exception;
    }

    @Override
    public void init() throws DBException {
        synchronized (YcsbWiredTiger.class) {
            String config = getProperties().getProperty("wiredtiger.config", "create,log=(enabled=true)");
            boolean is_first = users++ == 0;
            if (is_first) {
                connection = wiredtiger.open(getProperties().getProperty("wiredtiger.folder"), config);
            }
            session = connection.open_session("isolation=snapshot");
            session.create(TABLE, LAYOUT);
            cursor = session.open_cursor(TABLE, null, null);
            if (is_first && Boolean.parseBoolean(getProperties().getProperty("wiredtiger.warm"))) {
                warm();
            }
        }
    }

    @Override
    public void cleanup() throws DBException {
        synchronized (YcsbWiredTiger.class) {
            cursor.close();
            session.close(null);
            if (--users == 0) {
                connection.close(null);
            }
        }
    }

    private void warm() {
        long start = System.nanoTime();
        while (cursor.next() == 0) {
            cursor.getValueByteArray();
        }
        cursor.reset();
        System.out.println("[WARM], RunTime(ms), " + (System.nanoTime() - start) / 1000000);
    }

    private static byte[] packed(Map<String, ByteIterator> record) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(1200);
        DataOutputStream out = new DataOutputStream(bytes);
        for (Map.Entry<String, ByteIterator> field : record.entrySet()) {
            byte[] value = field.getValue().toArray();
            out.writeUTF(field.getKey());
            out.writeInt(value.length);
            out.write(value);
        }
        return bytes.toByteArray();
    }

    private static void unpack(byte[] bytes, Set<String> wanted, Map<String, ByteIterator> record) throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
        while (in.available() > 0) {
            String name = in.readUTF();
            byte[] value = new byte[in.readInt()];
            in.readFully(value);
            if (wanted == null || wanted.contains(name)) {
                record.put(name, new ByteArrayByteIterator(value));
            }
        }
    }

    /** Runs it again as long as others are in its way; the cursor keeps no page afterwards. */
    private Status attempt(Action action) {
        try {
            while (true) {
                try {
                    return action.run();
                } catch (WiredTigerRollbackException conflict) {
                    session.rollback_transaction(null);
                } finally {
                    cursor.reset();
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
            return Status.ERROR;
        }
    }

    private boolean find(String key) throws Exception {
        cursor.putKeyString(key);
        return cursor.search() == 0;
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        return attempt(() -> {
            if (!find(key)) {
                return Status.NOT_FOUND;
            }
            unpack(cursor.getValueByteArray(), fields, result);
            return Status.OK;
        });
    }

    @Override
    public Status scan(String table, String start, int count, Set<String> fields,
            Vector<HashMap<String, ByteIterator>> result) {
        return attempt(() -> {
            cursor.putKeyString(start);
            SearchStatus where = cursor.search_near();
            boolean is_there = where != SearchStatus.NOTFOUND;
            if (where == SearchStatus.SMALLER) {
                is_there = cursor.next() == 0;
            }
            while (is_there && result.size() < count) {
                HashMap<String, ByteIterator> record = new HashMap<>();
                unpack(cursor.getValueByteArray(), fields, record);
                result.add(record);
                is_there = cursor.next() == 0;
            }
            return Status.OK;
        });
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        // They can be read once, and there may be a second attempt.
        Map<String, byte[]> news = new HashMap<>();
        values.forEach((name, value) -> news.put(name, value.toArray()));
        return attempt(() -> {
            session.begin_transaction(null);
            Map<String, ByteIterator> record = new HashMap<>();
            boolean is_there = find(key);
            if (is_there) {
                unpack(cursor.getValueByteArray(), null, record);
                news.forEach((name, value) -> record.put(name, new ByteArrayByteIterator(value)));
                cursor.putKeyString(key);
                cursor.putValueByteArray(packed(record));
                cursor.update();
            }
            session.commit_transaction(null);
            return is_there ? Status.OK : Status.NOT_FOUND;
        });
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        byte[] record;
        try {
            record = packed(values);
        } catch (IOException error) {
            return Status.ERROR;
        }
        return attempt(() -> {
            session.begin_transaction(null);
            cursor.putKeyString(key);
            cursor.putValueByteArray(record);
            cursor.insert();
            session.commit_transaction(null);
            return Status.OK;
        });
    }

    @Override
    public Status delete(String table, String key) {
        return attempt(() -> {
            cursor.putKeyString(key);
            return cursor.remove() == 0 ? Status.OK : Status.NOT_FOUND;
        });
    }
}
