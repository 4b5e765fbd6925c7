internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// Modification times of files, in seconds since 1970: those of responses, and their text in HTTP.
enum FileTime {
    /// Sets the times of an open file. A file system without times is no error.
    static func setModificationTime(ofDescriptor descriptor: Int32, seconds: Int64) {
        let time = timespec(tv_sec: Int(seconds), tv_nsec: 0)
        let times = [time, time]
        _ = unsafe futimens(descriptor, times)
    }

    /// Returns a time in the form of HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`.
    static func httpDateText(_ seconds: Int64) -> String {
        var time = time_t(seconds)
        var parts = unsafe tm()
        unsafe gmtime_r(&time, &parts)
        var text = [CChar](repeating: 0, count: 64)
        let count = unsafe strftime(&text, text.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
        return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Returns the Last-Modified of a response; nil without a valid one.
    static func lastModified(of response: Terminal.Response) -> Int64? {
        lastModified(of: HeaderFields(lines: response.httpFields))
    }

    static func lastModified(of fields: HeaderFields) -> Int64? {
        fields.firstValue(named: "last-modified").flatMap { HTTPDate($0, now: Int64(time(nil))) }?.secondsSince1970
    }
}
