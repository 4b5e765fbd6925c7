import Foundation
import SQLite
import Testing

/// The wrapper of SQLite: values, kept statements, transactions, and errors.
final class DatabaseTests {
    private let path = NSTemporaryDirectory() + "/database-\(UUID().uuidString)"
    private let database: Database

    init() throws {
        database = try Database(path)
        try database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, value, UNIQUE (value))")
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    @Test(arguments: [
        Value.null, .integer(Int64.min), .integer(Int64.max), .text(""), .text("a\u{0}ü"), .bytes([] as [UInt8]),
        .bytes([0, 255]),
    ])
    func `a value comes back as it was stored`(_ value: Value) throws {
        try database.run("INSERT INTO item VALUES (1, ?)", [value])
        let found = try database.mapFirstRow("SELECT value, typeof(value) FROM item") { row -> Value in
            switch row.text(1) {
            case "integer": .integer(row.int64(0))
            case "text": .text(row.text(0))
            case "blob": .bytes(row.bytes(0))
            default: row.isNull(0) ? .null : .integer(0)
            }
        }
        #expect(found == value)
    }

    @Test func `a kept statement runs again with other values, also after an error`() throws {
        let insert = "INSERT INTO item VALUES (?, ?)"
        try database.run(insert, [.integer(1), .text("a")])
        #expect(throws: DatabaseError.self) { try database.run(insert, [.integer(1), .text("b")]) }
        try database.run(insert, [.integer(2), .text("b")])
        #expect(database.changedRowCount == 1)
        #expect(try database.mapRows("SELECT value FROM item ORDER BY id") { $0.text(0) } == ["a", "b"])
        // A statement that was not run to its end would still hold the table.
        struct Stop: Error {}
        #expect(throws: Stop.self) { try database.forEach("SELECT id FROM item") { _ in throw Stop() } }
        try database.execute("DROP TABLE item")
    }

    @Test func `an error in a transaction undoes it, and an error of one statement does not end it`() throws {
        #expect(throws: DatabaseError.self) {
            try database.transaction {
                try database.run("INSERT INTO item VALUES (1, 1)")
                try database.run("INSERT INTO item VALUES (1, 1)")
            }
        }
        #expect(try database.firstInteger("SELECT count(*) FROM item") == 0)
        try database.begin()
        try database.run("INSERT INTO item VALUES (1, 1)")
        #expect(throws: DatabaseError.self) { try database.run("INSERT INTO item VALUES (1, 1)") }
        #expect(database.isInTransaction)
        try database.commit()
        #expect(try database.firstInteger("SELECT count(*) FROM item") == 1)
        database.rollBack()
    }

    @Test func `errors name the code and no values`() throws {
        try database.run("INSERT INTO item VALUES (1, 'secret')")
        let error = #expect(throws: DatabaseError.self) {
            try database.run("INSERT INTO item VALUES (2, ?)", [.text("secret")])
        }
        #expect(error?.description == "SQLite error 19: UNIQUE constraint failed: item.value")
        #expect(error?.isCorruption == false)
        try Data(repeating: 7, count: 8_192).write(to: URL(filePath: path + ".damaged"))
        defer { try? FileManager.default.removeItem(atPath: path + ".damaged") }
        let damaged = try Database(path + ".damaged")
        let damage = #expect(throws: DatabaseError.self) { try damaged.execute("SELECT 1 FROM a") }
        #expect(damage?.isCorruption == true)
        #expect(throws: DatabaseError.self) { _ = try Database("/nowhere/at/all") }
        #expect(throws: DatabaseError.self) { _ = try Database(path + ".missing", isReadOnly: true) }
    }
}
