//! A connection that speaks PostgreSQL's protocol (version 3): as much of it as is measured.
//!
//! The load of both servers is thereby made and timed by the same code, in the same process, over
//! loopback, and both get their answers as text. There is no password: the server trusts us.

use std::collections::HashMap;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::USER;
use crate::Failure;

pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    /// The names of prepared statements by their text.
    statements: HashMap<String, String>,
}

/// The rows of an answer as they came, each the values of its columns.
pub(crate) type Rows = Vec<Bytes>;

impl Connection {
    pub(crate) async fn open(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut connection =
            Self { stream, received: BytesMut::with_capacity(1 << 16), statements: HashMap::new() };
        let mut message = Vec::new();
        message.extend_from_slice(&(3_i32 << 16).to_be_bytes());
        for text in ["user", USER, "database", "postgres", ""] {
            push_text(&mut message, text);
        }
        connection.stream.write_all(&with_length(&message)).await?;
        connection.finish().await?;
        Ok(connection)
    }

    /// Runs statements without arguments.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<Rows, Failure> {
        let mut message = Vec::new();
        push_text(&mut message, sql);
        self.stream.write_all(&tagged(b'Q', &message)).await?;
        self.finish().await
    }

    /// Runs a statement, which is prepared when it is new to this connection.
    pub(crate) async fn query(&mut self, sql: &str, values: &[String]) -> Result<Rows, Failure> {
        let mut messages = Vec::new();
        if !self.statements.contains_key(sql) {
            let name = format!("s{}", self.statements.len());
            let mut parse = Vec::new();
            push_text(&mut parse, &name);
            push_text(&mut parse, sql);
            push_count(&mut parse, 0);
            messages.extend(tagged(b'P', &parse));
            self.statements.insert(sql.to_owned(), name);
        }
        let mut bind = Vec::new();
        push_text(&mut bind, "");
        push_text(&mut bind, &self.statements[sql]);
        push_count(&mut bind, 0);
        push_count(&mut bind, values.len());
        for value in values {
            bind.extend_from_slice(&(value.len() as i32).to_be_bytes());
            bind.extend_from_slice(value.as_bytes());
        }
        push_count(&mut bind, 0);
        messages.extend(tagged(b'B', &bind));
        // The unnamed portal, and all of its rows.
        messages.extend(tagged(b'E', &[0; 5]));
        messages.extend(tagged(b'S', &[]));
        self.stream.write_all(&messages).await?;
        self.finish().await
    }

    /// Begins a COPY from here; the lines follow by `copy_lines`, the end by `copy_end`.
    pub(crate) async fn copy_begin(&mut self, table: &str) -> Result<(), Failure> {
        let mut message = Vec::new();
        push_text(&mut message, &format!("COPY {table} FROM STDIN"));
        self.stream.write_all(&tagged(b'Q', &message)).await?;
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'G' => return Ok(()),
                b'E' => return Err(complaint(&body).into()),
                _ => {}
            }
        }
    }

    pub(crate) async fn copy_lines(&mut self, lines: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.write_all(&tagged(b'd', lines)).await?)
    }

    pub(crate) async fn copy_end(&mut self) -> Result<(), Failure> {
        self.stream.write_all(&tagged(b'c', &[])).await?;
        self.finish().await?;
        Ok(())
    }

    /// Reads until the server is ready for the next question.
    async fn finish(&mut self) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        let mut failed = None;
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'D' => rows.push(body),
                b'E' if failed.is_none() => failed = Some(complaint(&body)),
                // Anything but "trusted" asks for a password.
                b'R' if !body.starts_with(&[0; 4]) => return Err("PostgreSQL wants more".into()),
                b'Z' => break,
                _ => {}
            }
        }
        match failed {
            None => Ok(rows),
            Some(complaint) => Err(complaint.into()),
        }
    }

    async fn message(&mut self) -> Result<(u8, Bytes), Failure> {
        loop {
            if let Some(mut head) = self.received.get(..5) {
                let kind = head.get_u8();
                let length = head.get_u32() as usize;
                if self.received.len() > length {
                    let mut message = self.received.split_to(length + 1).freeze();
                    message.advance(5);
                    return Ok((kind, message));
                }
            }
            self.received.reserve(1 << 16);
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err("PostgreSQL closed the connection".into());
            }
        }
    }
}

/// The first column of a row; none where it is null.
pub(crate) fn first_column(row: &[u8]) -> Option<&[u8]> {
    let mut rest = row.get(2..)?;
    let length = usize::try_from(rest.try_get_i32().ok()?).ok()?;
    rest.get(..length)
}

fn push_text(message: &mut Vec<u8>, text: &str) {
    message.extend_from_slice(text.as_bytes());
    message.push(0);
}

fn push_count(message: &mut Vec<u8>, count: usize) {
    message.extend_from_slice(&(count as u16).to_be_bytes());
}

/// A message begins with its length, which counts itself.
fn with_length(body: &[u8]) -> Vec<u8> {
    [&(body.len() as i32 + 4).to_be_bytes()[..], body].concat()
}

fn tagged(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &with_length(body)].concat()
}

/// What PostgreSQL says of an error: the field M.
fn complaint(body: &[u8]) -> String {
    let message = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    format!("PostgreSQL: {}", String::from_utf8_lossy(message.unwrap_or(body)))
}
